"""Small generated data sets of objects in COCO's format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from trees import write_image

CATEGORIES = [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}]
WIDE, HIGH = (40, 60), (60, 40)  # height, width

Mask = NDArray[np.uint8]
Box = tuple[float, float, float, float]


def coco_tree(root: Path) -> Path:
    """Three images of train2017, of which one has no object, with four objects, and one image of val2017."""
    write_coco(
        root / "annotations" / "instances_train2017.json",
        root / "train2017",
        {7: WIDE, 5: HIGH, 8: WIDE},
        [
            annotation(1, 7, 3, (10, 5, 20, 15)),
            annotation(2, 7, 9, (40, 20, 10, 16), segmentation=run_lengths(rectangle(WIDE, (40, 20, 10, 16)))),
            annotation(3, 5, 9, (5, 30, 30, 20), segmentation=compressed(rectangle(HIGH, (5, 30, 30, 20)))),
            annotation(4, 5, 3, (0, 0, 40, 10), segmentation=run_lengths(rectangle(HIGH, (0, 0, 40, 10))), iscrowd=1),
        ],
    )
    write_coco(
        root / "annotations" / "instances_val2017.json",
        root / "val2017",
        {11: WIDE},
        [annotation(1, 11, 3, (10, 5, 20, 15))],
    )
    return root


def write_coco(
    path: Path,
    folder: Path,
    images: dict[int, tuple[int, int]],
    annotations: Sequence[dict[str, Any]],
    categories: Sequence[dict[str, Any]] = CATEGORIES,
) -> Path:
    """A JSON file with pictures of noise; `images` are sizes by number."""
    for number, size in images.items():
        write_image(folder / f"{number:012}.png", seed=number, size=size)
    entries = [
        {"id": number, "file_name": f"{number:012}.png", "height": height, "width": width}
        for number, (height, width) in images.items()
    ]
    content = {"images": entries, "annotations": list(annotations), "categories": list(categories)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def annotation(number: int, image: int, category: int, box: Box, **changes: Any) -> dict[str, Any]:
    """A rectangle (left, top, width, height), as a polygon if `changes` do not say otherwise."""
    x, y, width, height = box
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": list(box),
        "segmentation": [[x, y, x + width, y, x + width, y + height, x, y + height]],
        "area": width * height,
        "iscrowd": 0,
        **changes,
    }


def rectangle(size: tuple[int, int], box: Box) -> Mask:
    """The mask of a rectangle of whole pixels."""
    x, y, width, height = (int(value) for value in box)
    mask = np.zeros(size, dtype=np.uint8)
    mask[y : y + height, x : x + width] = 1
    return mask


def run_lengths(mask: Mask) -> dict[str, Any]:
    """A mask as COCO's uncompressed run lengths."""
    flat = np.concatenate([[0], mask.ravel(order="F"), [2]])
    changes = np.flatnonzero(np.diff(flat)).tolist()
    starts = [0, *changes]
    return {"size": list(mask.shape), "counts": np.diff(starts).tolist()}


def compressed(mask: Mask) -> dict[str, Any]:
    """A mask as COCO's compressed run lengths, by pycocotools."""
    rle = coco_mask.encode(np.asfortranarray(mask))
    return {"size": list(mask.shape), "counts": rle["counts"].decode("ascii")}


def edit(path: Path, key: str, position: int, **changes: Any) -> None:
    """Change one entry of a JSON file; None removes a value."""
    content = json.loads(path.read_text())
    entry = {**content[key][position], **changes}
    content[key][position] = {name: value for name, value in entry.items() if value is not None}
    path.write_text(json.dumps(content))
