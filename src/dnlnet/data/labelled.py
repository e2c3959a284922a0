"""Images with a label map each, as they lie on disk: pairs of files, and what the values in a label file mean.

A data set is a function from a folder and a split to `LabelledImages`. Nothing is read until `open`, so that a
folder can be listed, checked and sampled by the same value.
"""

# H, W size of the image; K classes

import json
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dnlnet.data.classes import Classes, Colour
from dnlnet.data.files import composed, file_fault
from dnlnet.data.fingerprint import Listed, sampled
from dnlnet.data.rgb import SIDEWAYS, orientation, to_rgb, turned, upright
from dnlnet.data.sizes import MOST_PIXELS

Labels = NDArray[np.uint8]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
_NO_CLASS = 254
_CHUNK = 2**22  # pixels whose colours are decoded together, at some 40 bytes each


class Decoder(Protocol):
    """The meaning of the values in a label file."""

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        """Return the classes and IGNORE for values (H, W) or (H, W, 3); a ValueError names a value that has none."""
        ...

    def meaning(self) -> list[list[int]]:
        """Return each value or colour that has a class, with the class."""
        ...


@dataclass(frozen=True)
class Pair:
    """An image file and the label file that belongs to it."""

    image: Path
    labels: Path


@dataclass(frozen=True)
class Problem:
    """Something wrong with one file."""

    path: Path
    text: str

    def __str__(self) -> str:
        # A name on disk can hold bytes that are no text, which no terminal takes.
        return f"{self.path}: {self.text}".encode("utf-8", "backslashreplace").decode("utf-8")


class BadFileError(ValueError):
    """A file of a data set that cannot be used; its message is that of the `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def __reduce__(self) -> tuple[type["BadFileError"], tuple[Problem]]:
        return BadFileError, (self.problem,)  # workers of a DataLoader send it to the parent


@dataclass(frozen=True)
class LabelledImages:
    """The images of one split of a data set.

    Args:
        name: of the data set, for messages.
        classes: what the labels 0..K - 1 mean.
        pairs: the files, in a fixed order.
        decode: from the values in a label file to classes.
        problems: files found missing when the data set was listed.
        colour_labels: the label files hold colours, not numbers.
        colours: of the classes, if the palettes of label files have to agree with them.
    """

    name: str
    classes: Classes
    pairs: Sequence[Pair]
    decode: Decoder
    problems: Sequence[Problem] = ()
    colour_labels: bool = False
    colours: Sequence[Colour] = ()

    def __len__(self) -> int:
        return len(self.pairs)

    def files(self) -> Iterator[Listed]:
        """Yield the files in order, label files with a sample of their content and its meaning."""
        meaning = sha256(json.dumps(self.decode.meaning()).encode()).hexdigest()[:16]
        for pair in self.pairs:
            yield pair.image, None
            yield pair.labels, [sampled(pair.labels) if pair.labels.is_file() else None, meaning]

    def open(self, index: int) -> tuple[Image.Image, Image.Image]:
        """Open the image, upright and in RGB, and its raw label map, of the same size.

        A bad file raises `BadFileError`.
        """
        image = self.open_image(index)
        return image, self.aligned(index, image.size, self.open_labels(index))

    def open_image(self, index: int) -> Image.Image:
        """Open the image of pair `index`, upright and in RGB."""
        return open_rgb(self.pairs[index].image)

    def open_labels(self, index: int) -> Image.Image:
        """Open the raw label map of pair `index`, upright as far as its own file says; see `aligned`."""
        path = self.pairs[index].labels
        with open_picture(path) as image:
            labels = upright(image.convert("RGB") if self.colour_labels and image.mode != "RGB" else image)
        if not self.colour_labels and labels.mode not in ("L", "P"):
            kind = f"a label file of mode {labels.mode}"
            raise BadFileError(Problem(path, f"{kind}; expected one 8-bit number for each pixel (mode L or P)"))
        for number, colour in _contradictions(labels, self.colours):
            names = f"in classes.yaml {self.classes.names[number]!r} is {self.colours[number]}"
            text = f"its palette shows {number} in {colour}, but {names}; correct their order, or leave colours out"
            raise BadFileError(Problem(path, text))
        return labels

    def aligned(self, index: int, size: tuple[int, int], labels: Image.Image) -> Image.Image:
        """Return the label map of an upright image of this width and height, or raise `BadFileError`.

        A map that has the size of the pixels as they are stored, before the image's EXIF orientation turns them by 90
        degrees, was drawn on those, and is turned alike. Any other map is taken to be upright.
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
        with open_picture(self.pairs[index].image, decode=False) as image:
            return orientation(image)

    def image_size(self, index: int) -> tuple[int, int]:
        """Return width and height of image `index` when it is upright, from its header."""
        with open_picture(self.pairs[index].image, decode=False) as image:
            return image.size[::-1] if orientation(image) in SIDEWAYS else image.size

    def decoded(self, index: int, raw: Image.Image) -> Labels:
        """The classes (H, W) of the raw label map of pair `index`, or of a part of it."""
        try:
            return self.decode(np.asarray(raw))
        except ValueError as error:
            raise BadFileError(Problem(self.pairs[index].labels, str(error))) from None

    def require_complete(self) -> "LabelledImages":
        """Itself, if it has images and nothing is missing."""
        require_complete(self.name, len(self.pairs), self.problems)
        return self


def require_complete(name: str, images: int, problems: Sequence[Problem]) -> None:
    """Fail unless a data set has images and nothing is missing.

    >>> require_complete("mine train", 1, [Problem(Path("a.jpg"), "no such file")])
    Traceback (most recent call last):
    ValueError: a.jpg: no such file
    """
    if problems:
        count = len(problems)
        more = f" (and {count - 1} more problems: dnlnet data check shows them)" if count > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
    if not images:
        raise ValueError(f"no images found for {name}; dnlnet data list shows the expected folders")


def index_labels(meaning: Mapping[int, int], expected: str) -> Decoder:
    """A decoder of label files that hold numbers: `meaning` says which class (or IGNORE) each number stands for.

    Args:
        meaning: number in the file -> class; a number that is not in it is an error.
        expected: the numbers allowed, in words, for the message.

    >>> decode = index_labels({0: 255, 1: 0, 2: 1}, expected="0 (void), 1..2")
    >>> decode(np.array([[0, 2]], dtype=np.uint8)).tolist()
    [[255, 1]]
    >>> decode(np.array([[7]], dtype=np.uint8))
    Traceback (most recent call last):
    ValueError: label 7 at row 0, column 0; expected 0 (void), 1..2
    """
    table = np.full(256, _NO_CLASS, dtype=np.uint8)
    for number, label in meaning.items():
        table[number] = label
    return _IndexDecoder(table, expected)


@dataclass(frozen=True, eq=False)
class _IndexDecoder:
    table: Labels  # of 256 values
    expected: str

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        labels = self.table[raw]
        wrong = labels == _NO_CLASS
        if wrong.any():
            row, column = divmod(int(wrong.argmax()), wrong.shape[1])
            raise ValueError(f"label {raw[row, column]} at row {row}, column {column}; expected {self.expected}")
        return labels

    def meaning(self) -> list[list[int]]:
        return [[value, label] for value, label in enumerate(self.table.tolist()) if label != _NO_CLASS]


def colour_labels(meaning: Mapping[Colour, int]) -> Decoder:
    """A decoder of label files that hold colours.

    >>> colour_labels({(255, 0, 0): 0, (0, 0, 0): 255})(np.zeros((1, 1, 3), dtype=np.uint8)).tolist()
    [[255]]
    """
    packed = np.array([_packed(np.array(colour)) for colour in meaning], dtype=np.int64)
    order = np.argsort(packed)
    classes = np.array(list(meaning.values()), dtype=np.uint8)
    return _ColourDecoder(packed[order], classes[order])


@dataclass(frozen=True, eq=False)
class _ColourDecoder:
    known: NDArray[np.int64]  # packed colours, in order
    classes: Labels

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        labels = np.empty(raw.shape[:2], dtype=np.uint8)
        rows = max(1, _CHUNK // max(1, raw.shape[1]))
        for top in range(0, len(raw), rows):
            colours = _packed(raw[top : top + rows])
            position = np.searchsorted(self.known, colours).clip(max=len(self.known) - 1)
            wrong = self.known[position] != colours
            if wrong.any():
                row, column = divmod(int(wrong.argmax()), wrong.shape[1])
                colour = tuple(int(value) for value in raw[top + row, column])
                raise ValueError(
                    f"colour {colour} at row {top + row}, column {column} is not a class of classes.yaml"
                )
            labels[top : top + rows] = self.classes[position]
        return labels

    def meaning(self) -> list[list[int]]:
        return [list(both) for both in zip(self.known.tolist(), self.classes.tolist(), strict=True)]


def _contradictions(labels: Image.Image, colours: Sequence[Colour]) -> Iterator[tuple[int, Colour]]:
    """Yield the numbers in a label map that its palette shows in another colour than the classes have, and that one.

    A palette of greys says nothing: programs write one where they know no colours.
    """
    flat = labels.getpalette() if colours and labels.mode == "P" else None
    palette = list(zip(*[iter(flat or ())] * 3, strict=False))
    if all(red == green == blue for red, green, blue in palette):
        return
    counts = labels.histogram()
    for number, (shown, own) in enumerate(zip(palette, colours, strict=False)):
        if shown != tuple(own) and counts[number]:
            yield number, shown


def pair_files(images: Mapping[str, Path], labels: Mapping[str, Path]) -> tuple[list[Pair], list[Problem]]:
    """Pairs of the files that share a key, in the order of the keys, and a problem for each file left alone.

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
    """Return the files by their `composed` keys, and a problem for each that then has the key of another."""
    found: dict[str, Path] = {}
    for key, path in files.items():
        found.setdefault(composed(key), path)
    text = "has the same name as another file, apart from its Unicode form; keep one of them"
    return found, [Problem(path, text) for key, path in files.items() if found[composed(key)] != path]


def files_by_stem(folder: Path, suffixes: Iterable[str] = IMAGE_SUFFIXES) -> dict[str, Path]:
    """The picture files of a folder by name without suffix."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    wanted = tuple(suffixes)
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in wanted}


# Image files are of many kinds, and each has its own ways to be damaged.
_DAMAGES = (
    *(OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(AssertionError, RuntimeError, struct.error, zlib.error),
)
_OTHER_PROGRAMS = frozenset(("EPS", "WMF"))  # formats that Pillow reads by starting a program, or part of the system


@contextmanager
def open_picture(path: Path, *, decode: bool = True) -> Iterator[Image.Image]:
    """A picture file, decoded; every way in which that fails becomes a `BadFileError`, one sentence with its path.

    Without `decode` only its header is read, which tells its size.

    Pillow's warnings, such as those about odd metadata, are ignored: the pixels are there.
    """
    if fault := file_fault(path):
        raise BadFileError(Problem(path, fault))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_formats()) as image:
                if decode:
                    image.load()
                if 0 in image.size:
                    raise ValueError("it has no pixels")
                yield image
    except UnidentifiedImageError:
        raise BadFileError(Problem(path, "is not a picture")) from None
    except Image.DecompressionBombError:
        raise BadFileError(Problem(path, f"has more than {MOST_PIXELS} pixels; cut it into parts")) from None
    except MemoryError:
        raise BadFileError(Problem(path, "does not fit into memory; cut it into parts")) from None
    except _DAMAGES as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadFileError(Problem(path, f"cannot be read: {first}")) from None


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _OTHER_PROGRAMS)


def open_rgb(path: Path) -> Image.Image:
    """Read an image file, upright and in RGB: see `to_rgb`. Of several pages the first is taken."""
    with open_picture(path) as image:
        return to_rgb(upright(image))


def _packed(colours: NDArray[np.integer]) -> NDArray[np.int64]:
    """Red, green, blue in the last axis as one number."""
    wide = colours.astype(np.int64)
    packed: NDArray[np.int64] = (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]
    return packed


def find_labels(splits: Iterable[LabelledImages], picture: Path) -> Labels | None:
    """Return the labels of an image that is a file of one of these splits, or None.

    >>> find_labels([], Path("a.png")) is None
    True
    """
    wanted = picture.resolve()
    for images in splits:
        for index, pair in enumerate(images.pairs):
            if pair.image.name == wanted.name and pair.image.resolve() == wanted:
                return images.decoded(index, images.open(index)[1])
    return None
