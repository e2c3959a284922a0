"""Objects in COCO's format: COCO 2017 itself, or one's own pictures with a JSON file of the same kind.

The file has `images` (id, file_name, height, width), `categories` (id, name) and `annotations` (image_id,
category_id, bbox, segmentation, and usually id, area and iscrowd), a list each.
"""

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.classes import Classes, spread_colours
from dnlnet.data.labelled import Problem
from dnlnet.data.objects import AnnotatedImage, Instance, InstanceImages
from dnlnet.data.outlines import Outline, Polygons, RunLengths, Size, decompressed
from dnlnet.errors import shown, unknown

SPLITS = ("train2017", "val2017")
KEYS = ("images", "annotations", "categories")
_FORMAT = f"expected COCO's instances format: {', '.join(KEYS[:-1])} and {KEYS[-1]}, a list each"


def open_coco(root: Path, split: str) -> InstanceImages:
    """The images of a split of COCO 2017.

    Args:
        root: the folder of `annotations/instances_<split>.json` and of the folder `<split>` with the images.
        split: train2017 or val2017.

    >>> open_coco(Path("coco"), "train")
    Traceback (most recent call last):
    ValueError: unknown split 'train'; did you mean 'train2017'? known: train2017, val2017
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    return open_coco_file(root / "annotations" / f"instances_{split}.json", root / split, name=f"coco {split}")


def open_coco_folder(root: Path, split: str) -> InstanceImages:
    """One's own images with objects: `annotations/<split>.json` in COCO's format, images in `<split>` or `images`.

    >>> open_coco_folder(Path("mine"), "train")
    Traceback (most recent call last):
    FileNotFoundError: mine/annotations/train.json: no such file
    """
    images = root / split
    return open_coco_file(
        root / "annotations" / f"{split}.json", images if images.is_dir() else root / "images", f"{root.name} {split}"
    )


def open_coco_file(annotations: Path, images: Path, name: str | None = None) -> InstanceImages:
    """The images that a JSON file in COCO's format describes.

    A file that is not of this format raises ValueError. What is wrong with single entries becomes `problems`, and
    those entries are left out.

    Args:
        annotations: the JSON file.
        images: the folder that its file names are in.
        name: of the data, for messages; by itself the name of the file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.json"
    ...     _ = path.write_text('{"images": [], "annotations": [], "categories": [{"id": 7, "name": "cat"}]}')
    ...     mine = open_coco_file(path, Path(folder))
    >>> mine.name, mine.classes.names, mine.categories
    ('mine', ('cat',), (7,))
    """
    content = _load(annotations)
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: no such folder")
    try:
        names = _category_names(content["categories"])
    except ValueError as error:
        raise ValueError(f"{annotations}: {error}") from None
    listed, image_problems = _images(content["images"], images, annotations)
    labels = {number: label for label, number in enumerate(names, start=1)}
    instances, faults = _instances(content["annotations"], {n: image.size for n, image in listed.items()}, labels)
    present, missing = _present(list(listed.values()))
    return InstanceImages(
        name=name or annotations.stem,
        classes=Classes(tuple(names.values()), spread_colours(len(names)), tuple(names)),
        images=tuple(replace(image, instances=tuple(instances[image.number])) for image in present),
        problems=(*image_problems, *(Problem(annotations, text) for text in faults), *missing),
    )


def _load(path: Path) -> dict[str, list[Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        content = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: is not JSON: {error.msg} in line {error.lineno}; {_FORMAT}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not JSON: it is no text in UTF-8; {_FORMAT}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}; {_FORMAT}")
    for key in KEYS:
        if not isinstance(content.get(key), list):
            what = f"{key} is no list" if key in content else f"has no {key}"
            raise ValueError(f"{path}: {what}; {_FORMAT}")
    return content


def _category_names(entries: list[Any]) -> dict[int, str]:
    """Number -> name of each category, in the order of the numbers."""
    for entry in entries:
        if not isinstance(entry, dict) or not _is_number(entry.get("id")) or not isinstance(entry.get("name"), str):
            raise ValueError(f"a category is {shown(entry)}; expected an id, which is a whole number, and a name")
    if not entries:
        raise ValueError("has no categories; expected an id and a name for each class")
    number, count = Counter(entry["id"] for entry in entries).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} categories have the id {number}; each needs its own")
    return {entry["id"]: entry["name"] for entry in sorted(entries, key=lambda entry: entry["id"])}


def _images(entries: list[Any], folder: Path, path: Path) -> tuple[dict[int, AnnotatedImage], list[Problem]]:
    """The images by number, still without objects."""
    images: dict[int, AnnotatedImage] = {}
    problems = []
    for entry in entries:
        if not _is_image(entry):
            text = f"an image is {shown(entry)}; expected id, height and width as whole numbers, and file_name"
            problems.append(Problem(path, text))
        elif entry["id"] in images:
            problems.append(Problem(path, f"several images have the id {entry['id']}; each needs its own"))
        else:
            image_path = folder / entry["file_name"]
            images[entry["id"]] = AnnotatedImage(entry["id"], image_path, (entry["height"], entry["width"]))
    return images, problems


def _present(images: Sequence[AnnotatedImage]) -> tuple[list[AnnotatedImage], list[Problem]]:
    """Those images whose files are there, and a problem for each other one; every folder is listed only once."""
    folders = {image.path.parent for image in images}
    files = {folder: frozenset(os.listdir(folder)) if folder.is_dir() else frozenset() for folder in folders}
    present = [image for image in images if image.path.name in files[image.path.parent]]
    missing = [image for image in images if image.path.name not in files[image.path.parent]]
    return present, [Problem(image.path, "no such file") for image in missing]


def _instances(
    entries: list[Any], sizes: dict[int, Size], labels: dict[int, int]
) -> tuple[dict[int, list[Instance]], list[str]]:
    """The objects by the number of their image, and what is wrong with others, equal faults once with a count."""
    instances: dict[int, list[Instance]] = defaultdict(list)
    faults: dict[str, list[int]] = defaultdict(list)
    for position, entry in enumerate(entries):
        number = entry.get("id", position) if isinstance(entry, dict) else position
        try:
            instances[_known(entry, "image_id", "images", sizes)].append(_instance(entry, number, sizes, labels))
        except ValueError as error:
            faults[str(error)].append(number)
    return instances, [
        f"annotation {numbers[0]}{f' (and {len(numbers) - 1} more)' if len(numbers) > 1 else ''} {text}"
        for text, numbers in faults.items()
    ]


def _instance(entry: dict[str, Any], number: int, sizes: dict[int, Size], labels: dict[int, int]) -> Instance:
    category, box = _known(entry, "category_id", "categories", labels), entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(_is_finite(value) for value in box):
        raise ValueError(f"has the bbox {shown(box)}; expected [left, top, width, height] in pixels")
    x, y, width, height = (float(value) for value in box)
    outline = _outline(entry.get("segmentation"), sizes[entry["image_id"]])
    area = entry.get("area")
    if area is None:
        area = outline.area()
    elif not _is_finite(area):
        raise ValueError(f"has the area {shown(area)}; expected a number of pixels")
    return Instance(number, labels[category], (x, y, width, height), outline, float(area), bool(entry.get("iscrowd")))


def _known(entry: Any, key: str, kind: str, known: dict[int, Any]) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not _is_number(value):
        raise ValueError(f"has the {key} {shown(value)}; expected the id of one of the {kind}")
    if value not in known:
        raise ValueError(f"has the {key} {value}, which is not among the {kind}")
    return int(value)


def _outline(value: Any, size: Size) -> Outline:
    if isinstance(value, list):
        return Polygons(tuple(_coordinates(part) for part in value))
    if isinstance(value, dict) and _is_size(value.get("size")) and isinstance(value.get("counts"), list | str):
        counts = value["counts"]
        if not isinstance(counts, str) and not all(_is_number(count) for count in counts):
            raise ValueError(f"has the run lengths {shown(counts)}; expected whole numbers")
        numbers = decompressed(counts) if isinstance(counts, str) else np.array(counts, dtype=np.int64)
        runs = RunLengths((value["size"][0], value["size"][1]), numbers)
        if faults := runs.faults(size):
            raise ValueError(faults[0])
        return runs
    raise ValueError(
        f"has the segmentation {shown(value)}; expected polygons [[x, y, x, y, ...], ...], or size and counts"
    )


def _coordinates(part: Any) -> NDArray[np.float64]:
    try:
        values = np.array(part)
    except ValueError:  # lists of different lengths
        values = np.array(None)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise ValueError(f"has the polygon {shown(part)}; expected a list of numbers [x, y, x, y, ...]")
    return values.astype(np.float64, copy=False)


def _is_image(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and _is_number(entry.get("id"))
        and _is_size([entry.get("height"), entry.get("width")])
        and isinstance(entry.get("file_name"), str)
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_number(side) and side > 0 for side in value)


def _is_number(value: Any) -> bool:
    return type(value) is int  # not bool, which is an int too


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
