"""Check of a data set: read every image and label file, and report their contents and problems."""

# K classes

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.check import (
    Contents,
    WidthHeight,
    collecting,
    count_of,
    most_frequent_first,
    read_all,
    sizes_and_problems,
)
from dnlnet.data.classes import IGNORE
from dnlnet.data.labelled import LabelledImages
from dnlnet.data.problems import BadFileError, Problem
from dnlnet.progress import SILENT, Progress

_SOME_FILES = 200


@dataclass(frozen=True)
class PixelReport:
    """Contents and problems of a split.

    Args:
        name: Name of the split.
        images: Number of pairs of an image and a label file.
        class_names: Names of the K classes.
        class_pixels: Pixels of each class in all readable label files.
        ignored_pixels: Ignored pixels in the same files.
        sizes: Number of images of each (width, height), most frequent first.
        problems: All problems, each with its path.
        turned_images: Number of images that their EXIF orientation turns or mirrors.
        turned_masks: Number of masks that are turned with their image.
        hint: Probable correction of the meaning of the labels, if they do not fit it.
    """

    name: str
    images: int
    class_names: Sequence[str]
    class_pixels: Sequence[int]
    ignored_pixels: int
    sizes: Mapping[WidthHeight, int]
    problems: Sequence[Problem]
    turned_images: int = 0
    turned_masks: int = 0
    hint: str | None = None

    @property
    def class_shares(self) -> list[float]:
        """Share of each class among the pixels that count, or zeros if no pixel counts."""
        counted = sum(self.class_pixels)
        return [pixels / max(counted, 1) for pixels in self.class_pixels]

    @property
    def ignored_share(self) -> float:
        """Share of ignored pixels among all pixels, or zero if there are no pixels."""
        return self.ignored_pixels / max(sum(self.class_pixels) + self.ignored_pixels, 1)

    def to_json(self) -> dict[str, object]:
        """Return the report in JSON types.

        >>> report = PixelReport("mine train", 1, ["sky"], [3], 1, {(2, 2): 1}, [])
        >>> report.to_json()["classes"], report.to_json()["ignored_share"]
        ([{'name': 'sky', 'pixels': 3, 'share': 1.0}], 0.25)
        """
        shares = zip(self.class_names, self.class_pixels, self.class_shares, strict=True)
        return {
            "name": self.name,
            "images": self.images,
            "classes": [{"name": name, "pixels": pixels, "share": share} for name, pixels, share in shares],
            "ignored_pixels": self.ignored_pixels,
            "ignored_share": self.ignored_share,
            "turned_images": self.turned_images,
            "turned_masks": self.turned_masks,
            "hint": self.hint,
            **sizes_and_problems(self.sizes, self.problems),
        }

    def contents(self) -> Contents:
        """Return the contents of the printed table."""
        shares = self.class_shares
        columns = {"share": [f"{share:.2%}" if share else "none" for share in shares]}
        caption = f"ignored: {self.ignored_share:.2%}"
        hint = [] if self.hint is None else [f"hint: {self.hint}"]
        return Contents(count_of(self.images, "image"), shares, columns, caption, [*self._turned(), *hint])

    def _turned(self) -> list[str]:
        if not self.turned_images:
            return []
        drawn = f"; {count_of(self.turned_masks, 'mask')} drawn on the stored pixels turned alike, the others"
        masks = drawn if self.turned_masks else "; their masks"
        return [
            f"{count_of(self.turned_images, 'image')} turned upright by the EXIF orientation{masks} taken as upright"
        ]


def check_pixels(images: LabelledImages, progress: Progress = SILENT) -> PixelReport:
    """Read all files of a split. Problems go into the report and do not stop the check.

    Args:
        images: Images to check.
        progress: Observer of the images.

    >>> from pathlib import Path
    >>> from dnlnet.data.decoders import index_labels
    >>> from dnlnet.segmentation.data.camvid import CLASSES
    >>> alone = Problem(Path("a.jpg"), "has no label file")
    >>> check_pixels(LabelledImages("mine", CLASSES, [], index_labels({0: 0}, "0"), [alone])).problems
    (Problem(path=PosixPath('a.jpg'), text='has no label file'),)
    """
    problems = list(images.problems)
    pixels = np.zeros(IGNORE + 1, dtype=np.int64)
    numbers: set[int] = set()
    sizes: Counter[WidthHeight] = Counter()
    turned_images = turned_masks = 0
    for found in read_all(partial(_read, images), range(len(images)), images.name, progress):
        problems += found.problems
        if found.size is not None:
            sizes[found.size] += 1
        if found.pixels is not None:
            pixels += found.pixels
        numbers |= found.numbers
        turned_images += found.image_turned
        turned_masks += found.mask_turned
    if pixels.any() and not pixels[: len(images.classes)].any():
        text = f"no pixel of the {len(images)} label files has a class: all are ignored; nothing to train on"
        problems.append(Problem(images.pairs[0].labels.parent, text))
    return PixelReport(
        name=images.name,
        images=len(images),
        class_names=tuple(images.classes.names),
        class_pixels=tuple(pixels[: len(images.classes)].tolist()),
        ignored_pixels=int(pixels[IGNORE]),
        sizes=most_frequent_first(sizes),
        problems=tuple(problems),
        turned_images=turned_images,
        turned_masks=turned_masks,
        hint=None if images.hint is None else images.hint(numbers),
    )


@dataclass(frozen=True)
class _Found:
    size: WidthHeight | None
    pixels: NDArray[np.int64] | None  # pixels of each label 0..255
    numbers: set[int]  # in the label file
    problems: list[Problem]
    image_turned: bool
    mask_turned: bool


def _read(images: LabelledImages, index: int) -> _Found:
    """Read a pair of files. Each step runs even if another fails, so that one check finds all problems."""
    problems: list[Problem] = []
    image = raw = aligned = pixels = None
    image_turned = False
    with collecting(problems):
        image = images.open_image(index)
        image_turned = images.orientation(index) != 1
    with collecting(problems):
        raw = images.open_labels(index)
    if image is not None and raw is not None:
        with collecting(problems):
            aligned = images.aligned(index, image.size, raw)
    numbers: set[int] = set()
    if raw is not None:
        numbers = set() if images.colour_labels else _numbers(raw)
        with collecting(problems):
            pixels = np.array(Image.fromarray(images.decoded(index, raw)).histogram())
    mask_turned = aligned is not None and aligned is not raw
    return _Found(None if image is None else image.size, pixels, numbers, problems, image_turned, mask_turned)


def _numbers(raw: Image.Image) -> set[int]:
    """Return the numbers in a raw label map."""
    return {number for number, count in enumerate(raw.histogram()) if count}


def require_labels(images: LabelledImages, progress: Progress = SILENT) -> None:
    """Raise if only one class is defined or no pixel is labelled. Report if only one class occurs.

    Label files are read until two classes are found, usually in the first file.
    """
    names = images.classes.names
    if len(names) < 2:
        raise ValueError(
            f"{images.name}: {names[0]!r} is the only class, so there is nothing to learn; name the rest as well, "
            "such as names: [background, ...]"
        )
    seen: set[int] = set()
    for index in range(len(images)):
        raw = images.open_labels(index)
        try:
            seen |= set(np.unique(images.decoded(index, raw)).tolist()) - {IGNORE}
        except BadFileError as error:
            raise ValueError(f"{error}{_advice(images)}") from None
        if len(seen) > 1:
            return
    if not seen:
        raise ValueError(f"{images.name}: no pixel of {len(images)} label files is labelled; all are ignored")
    only = names[seen.pop()]
    progress.say(f"{images.name}: {only!r} is the only class in {len(images)} label files: there is nothing to learn")


def _advice(images: LabelledImages) -> str:
    """Return the probable correction for labels that the first label files show to be wrong, or an empty text."""
    if images.hint is None:
        return ""
    numbers: set[int] = set()
    for index in range(min(len(images), _SOME_FILES)):
        with suppress(BadFileError):
            numbers |= _numbers(images.open_labels(index))
    correction = images.hint(numbers)
    return "" if correction is None else f"; {correction}"
