"""Checks of the entries of a COCO file.

Everything is checked here because pycocotools checks nothing: a bad size or coordinate crashes the process.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.classes import is_name
from dnlnet.data.images import HeightWidth, size_fault
from dnlnet.detection.data.objects import AnnotatedImage, Instance
from dnlnet.detection.data.outlines import Outline, Polygons, RunLengths, decompressed
from dnlnet.errors import shown

Read = TypeVar("Read")

_LARGEST_ID = 2**63 - 1
_LONGEST_NAME = 255  # characters of a file or folder name that file systems allow
_LARGEST_MEASURE = 1e12  # for coordinates and areas in pixels


def read_entries(kind: str, entries: Iterable[Any], read: Callable[[Any, int], Read]) -> tuple[list[Read], list[str]]:
    """Read each entry. Return the results of the good ones and the faults of the others; equal faults are counted.

    Args:
        kind: Name of an entry in messages.
        entries: Entries of the file.
        read: Function of an entry and its id, or its position if it has none. Raises ValueError for a bad entry.

    >>> read_entries("category", [{"id": 7, "name": "cat"}, {"id": 8}], read_category)
    ([(7, 'cat')], ['category 8 has the name nothing; expected text'])
    """
    good: list[Read] = []
    faults: dict[str, list[int]] = defaultdict(list)
    for position, entry in enumerate(entries):
        number = entry["id"] if isinstance(entry, dict) and is_id(entry.get("id")) else position
        try:
            if not isinstance(entry, dict):
                raise ValueError(f"is {shown(entry)}; expected keys and values")
            good.append(read(entry, number))
        except ValueError as error:
            faults[str(error)].append(number)
    return good, [
        f"{kind} {numbers[0]}{f' (and {len(numbers) - 1} more)' if len(numbers) > 1 else ''} {text}"
        for text, numbers in faults.items()
    ]


def read_category(entry: Any, number: int) -> tuple[int, str]:
    """Return id and name of a category.

    >>> read_category({"id": 7, "name": "cat"}, 7)
    (7, 'cat')
    """
    name = entry.get("name")
    if not is_name(name):
        raise ValueError(f"has the name {shown(name)}; expected text")
    return _own_id(entry), name


def read_image(entry: Any, folder: Path) -> AnnotatedImage:
    """Return an image whose file is in this folder, without its objects.

    >>> read_image({"id": 7, "file_name": "a.jpg", "height": 2, "width": 3}, Path("train")).path
    PosixPath('train/a.jpg')
    """
    number, name = _own_id(entry), entry.get("file_name")
    if not is_name(name):
        raise ValueError(f"has the file_name {shown(name)}; expected text")
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts or not Path(name).name or max(map(len, parts)) > _LONGEST_NAME:
        raise ValueError(f"has the file_name {shown(name)}; expected a file in {folder}, and its path from there")
    height, width = entry.get("height"), entry.get("width")
    for side, value in (("height", height), ("width", width)):
        if type(value) is not int:
            raise ValueError(f"has the {side} {shown(value)}; expected a whole number of pixels")
    if fault := size_fault((height, width)):
        raise ValueError(fault)
    return AnnotatedImage(number, folder / name, (height, width))


def read_object(
    entry: Any, number: int, sizes: Mapping[int, HeightWidth], labels: Mapping[int, int]
) -> tuple[int, Instance]:
    """Return the image id of an annotation, and its object.

    Args:
        entry: Annotation.
        number: Its id, or its position if it has none.
        sizes: Image id -> size.
        labels: Category id -> label.
    """
    if "id" in entry:
        _own_id(entry)
    image = _known(entry, "image_id", "images", sizes)
    category, box = _known(entry, "category_id", "categories", labels), entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(_is_measure(value) for value in box):
        raise ValueError(f"has the bbox {shown(box)}; expected [left, top, width, height] in pixels")
    x, y, width, height = (float(value) for value in box)
    outline = _outline(entry.get("segmentation"), sizes[image])
    if fault := outline.drawing_fault(sizes[image]):
        raise ValueError(fault)
    area, crowd = entry.get("area"), entry.get("iscrowd", 0)
    if area is None:
        area = outline.area()
    elif not _is_measure(area) or area < 0:
        raise ValueError(f"has the area {shown(area)}; expected a number of pixels")
    if crowd not in (0, 1):
        raise ValueError(f"has the iscrowd {shown(crowd)}; expected 0 or 1")
    return image, Instance(number, labels[category], (x, y, width, height), outline, float(area), bool(crowd))


def is_id(value: Any) -> bool:
    """Return whether a value can be the id of an image, a category or an annotation.

    >>> is_id(7), is_id(-1), is_id(True), is_id(2**64)
    (True, False, False, False)
    """
    return type(value) is int and 0 <= value <= _LARGEST_ID  # bool is an int too


def _own_id(entry: Any) -> int:
    value = entry.get("id")
    if not is_id(value):
        raise ValueError(f"has the id {shown(value)}; expected a whole number in 0..2^63 - 1")
    return int(value)


def _known(entry: Any, key: str, kind: str, known: Mapping[int, Any]) -> int:
    value = entry.get(key)
    if not is_id(value):
        raise ValueError(f"has the {key} {shown(value)}; expected the id of one of the {kind}")
    if value not in known:
        raise ValueError(f"has the {key} {value}, which is not among the {kind}")
    return int(value)


def _outline(value: Any, size: HeightWidth) -> Outline:
    if isinstance(value, list):
        return Polygons(tuple(_coordinates(part) for part in value))
    given = value.get("size") if isinstance(value, dict) else None
    if not isinstance(given, list) or not isinstance(value.get("counts"), list | str):
        expected = "expected polygons [[x, y, x, y, ...], ...], or size and counts"
        raise ValueError(f"has the segmentation {shown(value)}; {expected}")
    if given != list(size) or not all(type(side) is int for side in given):
        text = "{} for an image of {} x {} (height x width); both must be the same".format(shown(given), *size)
        raise ValueError(f"has run lengths of the size {text}")
    counts = value["counts"]
    if isinstance(counts, str):
        return RunLengths(size, decompressed(counts))
    if not all(type(count) is int and abs(count) <= _LARGEST_ID for count in counts):
        raise ValueError(f"has the run lengths {shown(counts)}; expected whole numbers of pixels")
    return RunLengths(size, np.array(counts, dtype=np.int64))


def _coordinates(part: Any) -> NDArray[np.float64]:
    try:
        values = np.array(part)
    except ValueError:  # lists of different lengths
        values = np.array(None)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise ValueError(f"has the polygon {shown(part)}; expected a list of numbers [x, y, x, y, ...]")
    return values.astype(np.float64, copy=False)


def _is_measure(value: Any) -> bool:
    return type(value) in (int, float) and -_LARGEST_MEASURE <= value <= _LARGEST_MEASURE  # not nan
