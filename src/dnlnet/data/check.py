"""Read every file of a data set once: what is in it, and all that is wrong with it."""

# K classes

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.classes import IGNORE
from dnlnet.data.labelled import BadFileError, LabelledImages, Problem

Size = tuple[int, int]  # width, height, as Pillow has them
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Report:
    """What a split holds.

    Args:
        name: of the images.
        images: how many pairs of an image and a label file.
        class_names: the K names.
        class_pixels: pixels of each class, over all label files that can be read.
        ignored_pixels: pixels that do not count, over the same files.
        sizes: (width, height) -> how many images, the most frequent first.
        problems: all that is wrong, each with its path.
    """

    name: str
    images: int
    class_names: Sequence[str]
    class_pixels: Sequence[int]
    ignored_pixels: int
    sizes: Mapping[Size, int]
    problems: Sequence[Problem]

    @property
    def class_shares(self) -> list[float]:
        """The share of each class among the pixels that count; zeros if there are none."""
        counted = sum(self.class_pixels)
        return [pixels / max(counted, 1) for pixels in self.class_pixels]

    @property
    def ignored_share(self) -> float:
        """The share of ignored pixels among all; zero if there are none."""
        return self.ignored_pixels / max(sum(self.class_pixels) + self.ignored_pixels, 1)

    def to_json(self) -> dict[str, object]:
        """The report in types that JSON has.

        >>> report = Report("mine train", 1, ["sky"], [3], 1, {(2, 2): 1}, [])
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
            **sizes_and_problems(self.sizes, self.problems),
        }


def sizes_and_problems(
    sizes: Mapping[Size, int], problems: Sequence[Problem], of: str = "images"
) -> dict[str, object]:
    """The part of a report that is the same for all kinds of data, in types that JSON has.

    >>> sizes_and_problems({(4, 2): 1}, [])
    {'sizes': [{'width': 4, 'height': 2, 'images': 1}], 'problems': []}
    """
    return {
        "sizes": [{"width": width, "height": height, of: count} for (width, height), count in sizes.items()],
        "problems": [{"path": str(problem.path), "text": problem.text} for problem in problems],
    }


def most_frequent_first(sizes: Counter[Size]) -> dict[Size, int]:
    """Sizes with their counts.

    >>> most_frequent_first(Counter([(2, 1), (1, 2), (1, 2)]))
    {(1, 2): 2, (2, 1): 1}
    """
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def check(images: LabelledImages, progress: Callable[[], None] | None = None) -> Report:
    """Read all files; a bad one becomes a problem of the report and does not stop it.

    Args:
        images: what to read.
        progress: called after each pair, in their order.

    >>> from pathlib import Path
    >>> from dnlnet.segmentation.data.camvid import CLASSES
    >>> alone = Problem(Path("a.jpg"), "has no label file")
    >>> check(LabelledImages("mine", CLASSES, [], lambda raw: raw, [alone])).problems
    (Problem(path=PosixPath('a.jpg'), text='has no label file'),)
    """
    problems = list(images.problems)
    pixels = np.zeros(IGNORE + 1, dtype=np.int64)
    sizes: Counter[Size] = Counter()
    for found in read_all(partial(_read, images), range(len(images)), progress):
        problems += found.problems
        if found.size is not None:
            sizes[found.size] += 1
        if found.pixels is not None:
            pixels += found.pixels
    if pixels.any() and not pixels[: len(images.classes)].any():
        text = f"no pixel of the {len(images)} label files has a class: all are ignored; nothing to train on"
        problems.append(Problem(images.pairs[0].labels.parent, text))
    return Report(
        name=images.name,
        images=len(images),
        class_names=tuple(images.classes.names),
        class_pixels=tuple(pixels[: len(images.classes)].tolist()),
        ignored_pixels=int(pixels[IGNORE]),
        sizes=most_frequent_first(sizes),
        problems=tuple(problems),
    )


def read_all(
    read: Callable[[Item], Found], items: Iterable[Item], progress: Callable[[], None] | None = None
) -> Iterator[Found]:
    """What reading each item found, in their order, several at a time.

    >>> list(read_all(str.upper, "ab"))
    ['A', 'B']
    """
    # Pillow and PyAV decode without the interpreter's lock, so that threads are enough. Each turns off warnings while
    # it reads, which is a setting of all of them: it is put back here, after the last.
    with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for found in pool.map(read, items):
            yield found
            if progress is not None:
                progress()


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """A bad file in the block becomes a problem of the list."""
    try:
        yield
    except BadFileError as error:
        problems.append(error.problem)


@dataclass(frozen=True)
class _Found:
    size: Size | None
    pixels: NDArray[np.int64] | None  # of each label 0..255
    problems: list[Problem]


def _read(images: LabelledImages, index: int) -> _Found:
    """Each step is tried whatever became of the others, so that one run finds all."""
    problems: list[Problem] = []
    image = raw = pixels = None
    with collecting(problems):
        image = images.open_image(index)
    with collecting(problems):
        raw = images.open_labels(index)
    if image is not None and raw is not None:
        with collecting(problems):
            images.require_same_size(index, image, raw)
    if raw is not None:
        with collecting(problems):
            pixels = np.array(Image.fromarray(images.decoded(index, raw)).histogram())
    return _Found(None if image is None else image.size, pixels, problems)
