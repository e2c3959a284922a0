"""COCO 2017, and your own images with annotations in COCO's format.

The JSON file has three lists: `images` (id, file_name, height, width), `categories` (id, name) and `annotations`
(image_id, category_id, bbox, segmentation, and usually id, area and iscrowd).
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dnlnet.data.catalog import PARTS, FlatPart
from dnlnet.data.classes import Classes, distinct_colours
from dnlnet.data.files import file_fault, on_disk
from dnlnet.data.parsing import RepeatedKeyError, unique_keys
from dnlnet.data.problems import Problem
from dnlnet.detection.data.entries import read_category, read_entries, read_image, read_object
from dnlnet.detection.data.objects import AnnotatedImage, Instance, InstanceImages
from dnlnet.errors import shown, unknown

SPLITS = ("train2017", "val2017")
KEYS = ("images", "annotations", "categories")
_FORMAT = f"expected COCO's instances format: {', '.join(KEYS[:-1])} and {KEYS[-1]}, each a list"


def open_coco(root: Path, split: str) -> InstanceImages:
    """Open a split of COCO 2017.

    Args:
        root: Folder with `annotations/instances_<split>.json` and the images in `<split>`.
        split: train2017 or val2017.

    >>> open_coco(Path("coco"), "train")
    Traceback (most recent call last):
    ValueError: unknown split 'train'; did you mean 'train2017'? known: train2017, val2017
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    return open_coco_file(root / "annotations" / f"instances_{split}.json", root / split, name=f"coco {split}")


def open_coco_folder(root: Path, split: str) -> InstanceImages:
    """Open your own images: `annotations/<split>.json` in COCO's format, with the images in `<split>` or `images`.

    >>> open_coco_folder(Path("mine"), "train")
    Traceback (most recent call last):
    FileNotFoundError: mine/annotations/train.json: no such file
    """
    images = root / split
    return open_coco_file(
        root / "annotations" / f"{split}.json", images if images.is_dir() else root / "images", f"{root.name} {split}"
    )


def is_flat(root: Path) -> bool:
    """Return whether a folder has images and a single JSON file that is not named after a split."""
    files = list(root.glob("annotations/*.json"))
    return len(files) == 1 and (root / "images").is_dir() and not files[0].stem.startswith(("train", "val", "test"))


def open_flat(root: Path, part: FlatPart) -> InstanceImages:
    """Open a part of the images of a folder without splits: one JSON file in `annotations`, and `images`."""
    (annotations,) = root.glob("annotations/*.json")
    every = open_coco_file(annotations, root / "images", f"{root.name} {part.name}")
    images = tuple(image for image in every.images if image.path in part)
    return replace(every, images=images, problems=every.problems if part.name == PARTS[0] else ())


def open_coco_file(annotations: Path, images: Path, name: str | None = None) -> InstanceImages:
    """Open the images described by a JSON file in COCO's format.

    Raises ValueError if the file has another format. Bad entries are left out and listed in `problems`.

    Args:
        annotations: JSON file.
        images: Folder of the image files.
        name: Name of the data set, for messages. Default: name of the JSON file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.json"
    ...     _ = path.write_text('{"images": [], "annotations": [], "categories": [{"id": 7, "name": "cat"}]}')
    ...     mine = open_coco_file(path, Path(folder))
    >>> mine.name, mine.classes.names, mine.classes.numbers
    ('mine', ('cat',), (7,))
    """
    content = _load(annotations)
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: no such folder")
    names = _category_names(content["categories"], annotations)
    listed, faults = read_entries("image", content["images"], lambda entry, _: read_image(entry, images))
    faults += _repeated("images", "id", [image.id for image in listed])
    faults += _repeated("images", "file_name", [str(image.path.relative_to(images)) for image in listed])
    labels = {number: label for label, number in enumerate(names, start=1)}
    unique = {image.id: image for image in reversed(listed)}  # the first of several with the same id
    sizes = {number: image.size for number, image in unique.items()}
    found, object_faults = read_entries(
        "annotation", content["annotations"], partial(read_object, sizes=sizes, labels=labels)
    )
    faults += [f"has no {key}; expected at least one" for key in ("images", "annotations") if not content[key]]
    instances: dict[int, list[Instance]] = defaultdict(list)
    for number, one in found:
        instances[number].append(one)
    present, missing = _present([image for image in listed if unique[image.id] is image])
    return InstanceImages(
        name=name or annotations.stem,
        classes=Classes(tuple(names.values()), distinct_colours(len(names)), tuple(names)),
        images=tuple(replace(image, instances=tuple(instances[image.id])) for image in present),
        problems=(*(Problem(annotations, text) for text in [*faults, *object_faults]), *missing),
    )


def _load(path: Path) -> dict[str, list[Any]]:
    if fault := file_fault(path):
        others = ", ".join(sorted(other.name for other in path.parent.glob("*.json") if other.is_file())[:8])
        raise FileNotFoundError(f"{path}: {fault}{f' (there are {others})' if others else ''}")
    try:
        content = json.loads(path.read_bytes(), object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: is not JSON: {error.msg} in line {error.lineno}; {_FORMAT}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not JSON: it is not UTF-8 text; {_FORMAT}") from None
    except RepeatedKeyError as error:
        raise ValueError(f"{path}: {error}; {_FORMAT}") from None
    except MemoryError:
        raise ValueError(f"{path}: does not fit into memory; split it into several files") from None
    except (RecursionError, ValueError) as error:  # ValueError: a number with thousands of digits
        what = "is nested too deeply" if isinstance(error, RecursionError) else "has a number with too many digits"
        raise ValueError(f"{path}: {what}; {_FORMAT}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}; {_FORMAT}")
    for key in KEYS:
        if not isinstance(content.get(key), list):
            what = f"{key} is {shown(content[key])} and not a list" if key in content else f"has no {key}"
            raise ValueError(f"{path}: {what}; {_FORMAT}")
    return content


def _category_names(entries: list[Any], path: Path) -> dict[int, str]:
    """Return id -> name of the categories, in the order of their ids."""
    found, faults = read_entries("category", entries, read_category)
    faults += _repeated("categories", "id", [number for number, _ in found])
    faults += _repeated("categories", "name", [name for _, name in found])
    if not entries:
        faults.append("has no categories; expected an id and a name for each class")
    if faults:
        raise ValueError(f"{path}: {faults[0]}")
    return dict(sorted(found))


def _repeated(kind: str, key: str, values: Sequence[int | str]) -> list[str]:
    """Return a fault for each value that occurs more than once."""
    return [
        f"{count} {kind} have the {key} {shown(value)}; each needs its own"
        for value, count in Counter(values).items()
        if count > 1
    ]


def _present(images: Sequence[AnnotatedImage]) -> tuple[list[AnnotatedImage], list[Problem]]:
    """Return the images whose files exist, and a problem for each of the others. Each folder is listed once."""
    folders = {image.path.parent for image in images}
    files = {folder: frozenset(os.listdir(folder)) if folder.is_dir() else frozenset() for folder in folders}
    present: list[AnnotatedImage] = []
    missing: list[Problem] = []
    for image in images:
        if image.path.name in files[image.path.parent]:
            present.append(image)
        elif (path := on_disk(image.path)).exists():
            present.append(replace(image, path=path))
        else:
            missing.append(Problem(path, "no such file"))
    return present, missing
