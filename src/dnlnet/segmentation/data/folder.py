"""One's own data: pictures in `images`, label maps in `masks`, and `classes.yaml`, which says what the labels mean.

names: [sky, road, car]
colours: [[70, 130, 180], [128, 64, 128], [0, 0, 142]]  # may be left out if the masks hold numbers
masks: index                                            # or colour: the masks hold the colours above
ignore: 255                                             # or, for colour masks, a colour or several
"""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from dnlnet.data.classes import IGNORE, Classes, Colour, is_name, spread_colours
from dnlnet.data.files import file_fault
from dnlnet.data.labelled import (
    IMAGE_SUFFIXES,
    Decoder,
    LabelledImages,
    Problem,
    colour_labels,
    index_labels,
    pair_files,
)
from dnlnet.errors import shown, unknown

KEYS = ("names", "colours", "masks", "ignore")
MASK_KINDS = ("index", "colour")
_EXAMPLE = "for example names: [sky, road]"
# What PyYAML lets through for values that do not fit their tags, such as 2020-13-01, !!bool x and !!int "".
_BAD_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


def folder(root: Path, split: str) -> LabelledImages:
    """The images of a split; an image and its mask have the same path below it, apart from the suffix.

    Args:
        root: the folder of `classes.yaml`, `images/<split>` and `masks/<split>`.
        split: the name of a folder in `images`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     _ = (Path(root) / "classes.yaml").write_text("names: [sky, road]")
    ...     for part in ("images/train", "masks/train"):
    ...         (Path(root) / part).mkdir(parents=True)
    ...     folder(Path(root), "train").classes.names
    ('sky', 'road')
    """
    classes, decode, in_colour = read_classes(root / "classes.yaml")
    known = own_splits(root)
    if split not in known:
        raise unknown("split", split, known)
    images, image_problems = _by_path(root / "images" / split)
    masks, mask_problems = _by_path(root / "masks" / split)
    lossy = [key for key, path in masks.items() if path.suffix.lower() in (".jpg", ".jpeg")]
    mask_problems += [Problem(masks.pop(key), "JPEG changes the labels of a mask; save it as PNG") for key in lossy]
    pairs, alone = pair_files(images, masks)
    problems = [*image_problems, *mask_problems, *alone]
    return LabelledImages(f"folder {split}", classes, pairs, decode, problems, colour_labels=in_colour)


def own_splits(root: Path) -> list[str]:
    """The names of the folders in `images`, in order.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     (Path(root) / "images" / "val").mkdir(parents=True)
    ...     own_splits(Path(root))
    ['val']
    """
    images = root / "images"
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: no such folder")
    splits = sorted(path.name for path in images.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not splits:
        raise FileNotFoundError(f"{images}: has no folder for a split, such as {images / 'train'}")
    return splits


def read_classes(path: Path) -> tuple[Classes, Decoder, bool]:
    """The classes that a `classes.yaml` describes, the decoder of the masks, and whether they hold colours.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "classes.yaml").write_text("{names: [sky], masks: colour, colours: [[0, 0, 255]]}")
    ...     classes, _, in_colour = read_classes(Path(folder) / "classes.yaml")
    >>> classes, in_colour
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
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8; save it in that encoding") from None
    except RecursionError:
        raise ValueError(f"{path}: is nested without end; expected keys and values, {_EXAMPLE}") from None
    except (yaml.YAMLError, *_BAD_VALUES) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or ["a value that is none"])[0]
        raise ValueError(f"{path}: is not YAML: {what}{where}; expected keys and values, {_EXAMPLE}") from None


def _interpret(content: Any) -> tuple[Classes, Decoder, bool]:
    if not isinstance(content, dict):
        raise ValueError(f"holds {shown(content)}; expected keys and values, {_EXAMPLE}")
    for key in content:
        if key not in KEYS:
            raise unknown("key", key, KEYS)
    if "names" not in content:
        raise ValueError(f"has no names; expected a list of them, {_EXAMPLE}")
    names = _names(content["names"])
    kind = content.get("masks", "index")
    if kind not in MASK_KINDS:
        raise unknown("kind of masks", kind, MASK_KINDS)
    in_colour = kind == "colour"
    if in_colour and "colours" not in content:
        raise ValueError("masks: colour, but no colours; list the colour of each class under colours")
    classes = Classes(
        names, _colours(content["colours"], names) if "colours" in content else spread_colours(len(names))
    )
    if in_colour:
        return classes, _colour_decoder(classes, content.get("ignore", [])), True
    return classes, _index_decoder(classes, content.get("ignore", IGNORE)), False


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"names is {shown(value)}; expected a list, {_EXAMPLE}")
    for name in value:
        if not is_name(name):
            # YAML turns an unquoted no, on or 7 into something else than text.
            raise ValueError(f"{shown(name)} among the names; expected text: write it in quotes")
    if len(value) >= IGNORE:
        raise ValueError(f"{len(value)} names; at most {IGNORE - 1} classes fit into 8-bit labels")
    name, count = Counter(value).most_common(1)[0]
    if count > 1:
        raise ValueError(f"the name {name!r} is given {count} times; each class needs its own")
    return tuple(value)


def _colours(value: Any, names: tuple[str, ...]) -> tuple[Colour, ...]:
    if not isinstance(value, list):
        raise ValueError(f"colours is {shown(value)}; expected a list such as [[70, 130, 180], [128, 64, 128]]")
    if len(value) != len(names):
        raise ValueError(f"{len(value)} colours for {len(names)} names; give each class one colour")
    return tuple(_colour(colour, "colours") for colour in value)


def _colour(value: Any, key: str) -> Colour:
    if not isinstance(value, list) or len(value) != 3 or not all(_is_byte(part) for part in value):
        raise ValueError(f"{shown(value)} under {key}; expected [red, green, blue], each in 0..255")
    red, green, blue = value
    return red, green, blue


def _index_decoder(classes: Classes, ignore: Any) -> Decoder:
    if not _is_byte(ignore):
        raise ValueError(f"ignore is {shown(ignore)}; expected a number in 0..255 for index masks")
    last = len(classes) - 1
    if ignore <= last:
        raise ValueError(
            f"ignore is {ignore}, which is the class {classes.names[ignore]!r}; choose a number above {last}"
        )
    labels = {label: label for label in range(len(classes))}
    return index_labels({**labels, ignore: IGNORE}, expected=f"0..{last} or {ignore} (ignored)")


def _colour_decoder(classes: Classes, ignore: Any) -> Decoder:
    if not isinstance(ignore, list):
        raise ValueError(f"ignore is {shown(ignore)}; expected a colour or a list of colours for colour masks")
    several = all(isinstance(part, list) for part in ignore)
    ignored = [_colour(colour, "ignore") for colour in (ignore if several else [ignore])]
    meaning: dict[Colour, int] = {}
    for label, colour in enumerate(classes.palette):
        if colour in meaning:
            both = f"{classes.names[meaning[colour]]!r} and {classes.names[label]!r}"
            raise ValueError(f"{both} have the one colour {list(colour)}; colour masks need a different one for each")
        meaning[colour] = label
    for colour in ignored:
        if colour in meaning and meaning[colour] != IGNORE:
            name = classes.names[meaning[colour]]
            raise ValueError(f"ignore has {list(colour)}, which is the colour of {name!r}; choose another")
        meaning[colour] = IGNORE
    return colour_labels(meaning)


def _is_byte(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 255  # not bool, which is an int too


def _by_path(top: Path) -> tuple[dict[str, Path], list[Problem]]:
    """The pictures in a folder and its subfolders by path without suffix; a second one of a path is a problem."""
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
