"""Custom data: images in `images`, label maps in `masks`, and the meaning of the labels in `classes.yaml`.

names: [sky, road, car]
colours: [[70, 130, 180], [128, 64, 128], [0, 0, 142]]  # optional for index masks
masks: index                                            # or colour, if the masks hold the colours above
first: 0                                                # number of the first class in index masks
ignore: 255                                             # for colour masks, one or more colours
"""

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from dnlnet.data.catalog import PARTS, FlatPart
from dnlnet.data.classes import IGNORE, Byte, Classes, Colour, distinct_colours, is_name
from dnlnet.data.decoders import Decoder, colour_labels, index_labels
from dnlnet.data.files import composed, file_fault, on_disk
from dnlnet.data.images import IMAGE_SUFFIXES
from dnlnet.data.labelled import LabelledImages, pair_files
from dnlnet.data.parsing import expecting, parse_yaml, require_list, validated
from dnlnet.data.problems import Problem
from dnlnet.errors import shown, unknown

_EXAMPLE = "for example names: [sky, road]"
Hint = Callable[[Set[int]], str | None]


def _name(value: Any) -> str:
    if not is_name(value):
        raise ValueError("expected text; write it in quotes")  # YAML reads an unquoted no, on or 7 as another type
    return value


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ValueError(f"the name {name!r} is given {count} times; each class needs its own")
    return names


def _listed(colours: Any) -> Any:
    """Wrap a single colour in a list."""
    return [colours] if isinstance(colours, list) and not all(isinstance(part, list) for part in colours) else colours


_Colours = Annotated[tuple[Colour, ...], BeforeValidator(require_list)]


class _Content(BaseModel):
    """Keys of `classes.yaml` for both kinds of masks."""

    model_config = ConfigDict(frozen=True)

    names: Annotated[
        tuple[Annotated[str, BeforeValidator(_name)], ...],
        BeforeValidator(require_list),
        Field(min_length=1, max_length=IGNORE - 1),  # labels have 8 bits
        AfterValidator(_distinct),
    ]
    colours: _Colours = ()
    masks: str = "index"

    def classes(self) -> Classes:
        given = "colours" in self.model_fields_set
        return Classes(self.names, self.colours if given else distinct_colours(len(self.names)))


class _IndexMasks(_Content):
    ignore: Annotated[Byte, expecting("a number in 0..255 for index masks")] = IGNORE
    first: Annotated[Byte, expecting("the number of the first class, in 0..255")] = 0

    def decoder(self, classes: Classes) -> Decoder:
        first, last = self.first, self.first + len(classes) - 1
        if last > 255:
            raise ValueError(f"first is {first}, so the last class is {last}; masks have 8 bits, up to 255")
        if first <= self.ignore <= last:
            name = classes.names[self.ignore - first]
            raise ValueError(
                f"ignore is {self.ignore}, which is the class {name!r}; choose one outside {first}..{last}"
            )
        labels = {first + label: label for label in range(len(classes))}
        return index_labels({**labels, self.ignore: IGNORE}, expected=f"{first}..{last} or {self.ignore} (ignored)")

    def palette(self) -> dict[int, Colour]:
        return dict(enumerate(self.colours, start=self.first))

    def hint(self) -> "Hint":
        return partial(_numbering_hint, self.first, len(self.names), self.ignore)


def _numbering_hint(first: int, count: int, ignore: int, numbers: Set[int]) -> str | None:
    """Return the probable correction of `classes.yaml` for masks with these numbers, or None if they fit.

    >>> _numbering_hint(0, 3, 255, {1, 2, 3})
    'the masks hold 3 but never 0: if their classes start at 1, write first: 1 into classes.yaml'
    >>> _numbering_hint(0, 11, 255, {0, 5, 11})
    'if 11 is unlabelled, write ignore: 11 into classes.yaml; if 0 is, write first: 1 and ignore: 0'
    """
    strange = numbers - {*range(first, first + count), ignore}
    from_one = first == 0 and count in numbers and strange <= {count}
    if from_one and 0 not in numbers:
        instead = f" instead of ignore: {count}" if ignore == count else ""
        start = f"the masks hold {count} but never 0: if their classes start at 1"
        return f"{start}, write first: 1 into classes.yaml{instead}"
    if len(strange) == 1:
        other = "; if 0 is, write first: 1 and ignore: 0" if from_one else ""
        return f"if {min(strange)} is unlabelled, write ignore: {min(strange)} into classes.yaml{other}"
    return None


class _ColourMasks(_Content):
    ignore: Annotated[_Colours, BeforeValidator(_listed), expecting("[red, green, blue] or a list of colours")] = ()

    def decoder(self, classes: Classes) -> Decoder:
        if "colours" not in self.model_fields_set:
            raise ValueError("masks: colour, but no colours; list the colour of each class under colours")
        meaning: dict[Colour, int] = {}
        for label, colour in enumerate(classes.palette):
            if colour in meaning:
                both = f"{classes.names[meaning[colour]]!r} and {classes.names[label]!r}"
                raise ValueError(f"{both} have the same colour {list(colour)}; colour masks need one for each class")
            meaning[colour] = label
        for colour in self.ignore:
            if meaning.get(colour, IGNORE) != IGNORE:
                name = classes.names[meaning[colour]]
                raise ValueError(f"ignore has {list(colour)}, which is the colour of {name!r}; choose another")
            meaning[colour] = IGNORE
        return colour_labels(meaning)

    def palette(self) -> dict[int, Colour]:
        return {}

    def hint(self) -> None:
        return None


_MASKS: Mapping[str, type[_IndexMasks | _ColourMasks]] = {"index": _IndexMasks, "colour": _ColourMasks}


class Meaning(NamedTuple):
    """Content of `classes.yaml`.

    Args:
        classes: Classes, with their colours.
        decode: Decoder of the masks.
        in_colour: True if the masks hold colours.
        colours: Colour of each number that the palettes of index masks must match.
        hint: Function that suggests a correction for the numbers found in all index masks.
    """

    classes: Classes
    decode: Decoder
    in_colour: bool
    colours: Mapping[int, Colour]
    hint: Hint | None


def folder(root: Path, split: str) -> LabelledImages:
    """Open the images of a split. An image and its mask have the same relative path, apart from the suffix.

    Args:
        root: Folder with `classes.yaml`, `images/<split>` and `masks/<split>`.
        split: Name of a folder in `images`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     _ = (Path(root) / "classes.yaml").write_text("names: [sky, road]")
    ...     for part in ("images/train", "masks/train"):
    ...         (Path(root) / part).mkdir(parents=True)
    ...     folder(Path(root), "train").classes.names
    ('sky', 'road')
    """
    meaning = read_classes(root / "classes.yaml")
    known = own_splits(root)
    if composed(split) not in known:
        raise unknown("split", split, known)
    return _open(meaning, root, split)


def is_flat(root: Path) -> bool:
    """Return whether a folder has images, and neither images nor masks are in folders for splits."""
    described = (root / "classes.yaml").is_file() or (root / "masks").is_dir()
    return described and (root / "images").is_dir() and not _split_folders(root)


def open_flat(root: Path, part: FlatPart) -> LabelledImages:
    """Open a part of the images of a folder without splits: `images/*` with `masks/*`."""
    images = _open(read_classes(root / "classes.yaml"), root, "")
    pairs = [pair for pair in images.pairs if pair.image in part]
    problems = images.problems if part.name == PARTS[0] else ()
    return replace(images, name=f"folder {part.name}", pairs=pairs, problems=problems)


def _open(meaning: Meaning, root: Path, split: str) -> LabelledImages:
    images, image_problems = _by_path(on_disk(root / "images" / split))
    masks, mask_problems = _by_path(on_disk(root / "masks" / split))
    lossy = [key for key, path in masks.items() if path.suffix.lower() in (".jpg", ".jpeg")]
    mask_problems += [Problem(masks.pop(key), "JPEG changes the labels of a mask; save it as PNG") for key in lossy]
    pairs, alone = pair_files(images, masks)
    problems = [*image_problems, *mask_problems, *alone]
    classes, decode, in_colour, colours, hint = meaning
    return LabelledImages(f"folder {split}", classes, pairs, decode, problems, in_colour, colours, hint)


def own_splits(root: Path) -> list[str]:
    """Return the sorted names of the folders in `images` and `masks`. A split needs both.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     (Path(root) / "images" / "val").mkdir(parents=True)
    ...     own_splits(Path(root))
    ['val']
    """
    images = root / "images"
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: no such folder")
    splits = _split_folders(root)
    if not splits:
        raise FileNotFoundError(f"{images}: has no folder for a split, such as {images / 'train'}")
    return splits


def _split_folders(root: Path) -> list[str]:
    folders = [path for part in ("images", "masks") for path in (root / part).glob("*") if path.is_dir()]
    return sorted({composed(path.name) for path in folders if not path.name.startswith(".")})


def read_classes(path: Path) -> Meaning:
    """Read `classes.yaml`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "classes.yaml").write_text("{names: [sky], masks: colour, colours: [[0, 0, 255]]}")
    ...     meaning = read_classes(Path(folder) / "classes.yaml")
    >>> meaning.classes, meaning.in_colour
    (Classes(names=('sky',), palette=((0, 0, 255),)), True)
    """
    content = _load_yaml(path)
    try:
        return _interpret(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _load_yaml(path: Path) -> Any:
    if fault := file_fault(path):
        raise FileNotFoundError(f"{path}: {fault}; write one that names the classes, {_EXAMPLE}")
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8; save it in that encoding") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}; expected keys and values, {_EXAMPLE}") from None


def _interpret(content: Any) -> Meaning:
    if not isinstance(content, dict):
        raise ValueError(f"holds {shown(content)}; expected keys and values, {_EXAMPLE}")
    if "names" not in content:
        raise ValueError(f"has no names; expected a list of them, {_EXAMPLE}")
    masks = content.get("masks", "index")
    if not isinstance(masks, str) or masks not in _MASKS:
        raise unknown("kind of masks", masks, _MASKS)
    kind = _MASKS[masks]
    for key in content:
        if key not in kind.model_fields:
            raise unknown("key", key, kind.model_fields)
    found = validated(kind, content)
    classes = found.classes()
    return Meaning(classes, found.decoder(classes), masks == "colour", found.palette(), found.hint())


def _by_path(top: Path) -> tuple[dict[str, Path], list[Problem]]:
    """Return the images below a folder by path without suffix. Images with the same path are a problem."""
    if not top.is_dir():
        raise FileNotFoundError(f"{top}: no such folder")
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    for path in sorted(top.rglob("*")):
        if path.suffix.lower() not in IMAGE_SUFFIXES or path.name.startswith("."):
            continue
        first = files.setdefault(path.relative_to(top).with_suffix("").as_posix(), path)
        if first != path:
            problems.append(Problem(path, f"has the same name as {first.name}; keep one of them"))
    return files, problems
