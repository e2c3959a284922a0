"""Images with label maps: pairs of files, and the meaning of the values in a label file.

A data set is a function from a folder and a split to `LabelledImages`. No image is read before `open`, so the same
object serves to list, check and sample a folder.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

from dnlnet.data.classes import Classes, Colour
from dnlnet.data.decoders import Decoder, Labels
from dnlnet.data.files import composed, text_lines
from dnlnet.data.fingerprint import Listed, sampled
from dnlnet.data.images import IMAGE_SUFFIXES, SIDEWAYS, open_image, open_rgb, orientation, turned, upright
from dnlnet.data.problems import BadFileError, Problem, require_complete


@dataclass(frozen=True)
class Pair:
    """Image file and its label file."""

    image: Path
    labels: Path


@dataclass(frozen=True)
class LabelledImages:
    """Images and label maps of one split of a data set.

    Args:
        name: Name of the data set, for messages.
        classes: Classes 0..K - 1 of the labels.
        pairs: Files, in a fixed order.
        decode: Decoder of the label files.
        problems: Problems found when the files were listed.
        colour_labels: True if the label files contain colours instead of numbers.
        colours: Colour of each number that the palettes of label files must match, if any.
        hint: Function that suggests a correction for the numbers found in all label files, if there is one.
    """

    name: str
    classes: Classes
    pairs: Sequence[Pair]
    decode: Decoder
    problems: Sequence[Problem] = ()
    colour_labels: bool = False
    colours: Mapping[int, Colour] = field(default_factory=dict)
    hint: Callable[[Set[int]], str | None] | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def files(self) -> Iterator[Listed]:
        """Yield the files in order. A label file comes with a sample of its content and the meaning of its values."""
        meaning = sha256(json.dumps(self.decode.meaning()).encode()).hexdigest()[:16]
        for pair in self.pairs:
            yield pair.image, None
            yield pair.labels, [sampled(pair.labels) if pair.labels.is_file() else None, meaning]

    def open(self, index: int) -> tuple[Image.Image, Image.Image]:
        """Open an image, upright and in RGB, and its raw label map of the same size, or raise `BadFileError`."""
        image = self.open_image(index)
        return image, self.aligned(index, image.size, self.open_labels(index))

    def open_image(self, index: int) -> Image.Image:
        """Open the image of pair `index`, upright and in RGB."""
        return open_rgb(self.pairs[index].image)

    def open_labels(self, index: int) -> Image.Image:
        """Open the raw label map of pair `index`, turned by its own EXIF orientation only; see `aligned`."""
        path = self.pairs[index].labels
        with open_image(path) as image:
            labels = upright(image.convert("RGB") if self.colour_labels and image.mode != "RGB" else image)
        if not self.colour_labels and labels.mode not in ("L", "P"):
            kind = f"a label file of mode {labels.mode}"
            raise BadFileError(Problem(path, f"{kind}; expected one 8-bit number for each pixel (mode L or P)"))
        for number, colour in _contradictions(labels, self.colours):
            name = self.classes.names[list(self.colours).index(number)]
            names = f"in classes.yaml {name!r} is {self.colours[number]}"
            text = f"its palette shows {number} in {colour}, but {names}; correct their order, or leave colours out"
            raise BadFileError(Problem(path, text))
        return labels

    def aligned(self, index: int, size: tuple[int, int], labels: Image.Image) -> Image.Image:
        """Return the label map for an upright image of this width and height, or raise `BadFileError`.

        If the image's EXIF orientation exchanges height and width, a map with the size of the stored pixels is turned
        like the image. Any other map is assumed to be upright.
        """
        if labels.size == size:
            return labels
        pair = self.pairs[index]
        if labels.size == size[::-1] and (number := self.orientation(index)) in SIDEWAYS:
            return turned(labels, number)
        sizes = "{} x {} labels for an image of {} x {} (width x height)".format(*labels.size, *size)
        raise BadFileError(Problem(pair.labels, f"{sizes}; {pair.image.name} must have the same size"))

    def orientation(self, index: int) -> int:
        """Return the EXIF orientation of image `index`."""
        with open_image(self.pairs[index].image, decode=False) as image:
            return orientation(image)

    def image_size(self, index: int) -> tuple[int, int]:
        """Return the upright width and height of image `index`, read from its header."""
        with open_image(self.pairs[index].image, decode=False) as image:
            return image.size[::-1] if orientation(image) in SIDEWAYS else image.size

    def decoded(self, index: int, raw: Image.Image) -> Labels:
        """Return the classes (H, W) of the raw label map of pair `index`, or of a part of it."""
        try:
            return self.decode(np.asarray(raw))
        except ValueError as error:
            raise BadFileError(Problem(self.pairs[index].labels, str(error))) from None

    def require_complete(self) -> "LabelledImages":
        """Return the images, or raise if there are none or a file is missing."""
        require_complete(self.name, len(self.pairs), self.problems)
        return self


def _contradictions(labels: Image.Image, colours: Mapping[int, Colour]) -> Iterator[tuple[int, Colour]]:
    """Yield each number in a label map whose palette colour is not that of its class, with the palette colour.

    Skips grey palettes, which programs write if they know no colours.
    """
    flat = labels.getpalette() if colours and labels.mode == "P" else None
    palette = list(zip(*[iter(flat or ())] * 3, strict=False))
    if all(red == green == blue for red, green, blue in palette):
        return
    counts = labels.histogram()
    for number, own in colours.items():
        if counts[number] and number < len(palette) and palette[number] != tuple(own):
            yield number, palette[number]


def pair_files(images: Mapping[str, Path], labels: Mapping[str, Path]) -> tuple[list[Pair], list[Problem]]:
    """Pair the files that share a key, in the order of the keys. Also return a problem for each unpaired file.

    >>> pairs, problems = pair_files({"a": Path("a.jpg"), "b": Path("b.jpg")}, {"a": Path("a.png")})
    >>> pairs, str(problems[0])
    ([Pair(image=PosixPath('a.jpg'), labels=PosixPath('a.png'))], 'b.jpg: has no label file')
    """
    (images, problems), (labels, more) = composed_keys(images), composed_keys(labels)
    pairs = [Pair(images[key], labels[key]) for key in sorted(images.keys() & labels.keys())]
    problems += [Problem(images[key], "has no label file") for key in sorted(images.keys() - labels.keys())]
    problems += [Problem(labels[key], "has no image") for key in sorted(labels.keys() - images.keys())]
    return pairs, problems + more


def composed_keys(files: Mapping[str, Path]) -> tuple[dict[str, Path], list[Problem]]:
    """Return the files by `composed` key, and a problem for each key that occurs twice."""
    found: dict[str, Path] = {}
    for key, path in files.items():
        found.setdefault(composed(key), path)
    text = "has the same name as another file, apart from its Unicode form; keep one of them"
    return found, [Problem(path, text) for key, path in files.items() if found[composed(key)] != path]


def pair_listed(
    list_file: Path, images: Mapping[str, Path], labels: Mapping[str, Path]
) -> tuple[list[Pair], list[Problem]]:
    """Pair the files named in a list file, in its order. Also return a problem for each line that does not fit.

    Only the first word of a line counts, without its folder and image suffix, because lists are often written for
    another root.

    Args:
        list_file: List file with one image per line.
        images: Image files by stem.
        labels: Label files by stem.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "train.txt").write_text("/old/a.png /old/labels/a.png")
    ...     pair_listed(Path(folder) / "train.txt", {"a": Path("a.jpg")}, {"a": Path("a.png")})
    ([Pair(image=PosixPath('a.jpg'), labels=PosixPath('a.png'))], [])
    """
    pairs: list[Pair] = []
    (images, problems), (labels, more) = composed_keys(images), composed_keys(labels)
    problems += more
    seen: dict[str, int] = {}
    for number, line in text_lines(list_file):
        stem = listed_stem(line.split()[0])
        if stem in seen:
            problems.append(Problem(list_file, f"line {number} names {stem} again, after line {seen[stem]}"))
            continue
        seen[stem] = number
        missing = [kind for kind, files in (("image", images), ("label file", labels)) if stem not in files]
        problems += [Problem(list_file, f"line {number} names {stem}, which has no {kind}") for kind in missing]
        if not missing:
            pairs.append(Pair(images[stem], labels[stem]))
    return pairs, problems


def listed_stem(word: str) -> str:
    """Return the stem of the image that a list file names.

    >>> listed_stem("/old/a.png"), listed_stem("a.b")
    ('a', 'a.b')
    """
    path = Path(word)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


def inside(root: Path, *names: str) -> Path:
    """Return the first of these folders that exists in `root`, else `root` itself.

    >>> inside(Path("/nowhere"), "VOC2010")
    PosixPath('/nowhere')
    """
    return next((root / name for name in names if (root / name).is_dir()), root)


def find_labels(splits: Iterable[LabelledImages], image: Path) -> Labels | None:
    """Return the labels of an image file if it belongs to one of these splits, or None.

    >>> find_labels([], Path("a.png")) is None
    True
    """
    wanted = image.resolve()
    for images in splits:
        for index, pair in enumerate(images.pairs):
            if pair.image.name == wanted.name and pair.image.resolve() == wanted:
                return images.decoded(index, images.open(index)[1])
    return None
