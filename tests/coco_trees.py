"""Small generated detection data sets in COCO's format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from trees import save, write_image

CATEGORIES = [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}]
WIDE, HIGH = (40, 60), (60, 40)  # height, width

Mask = NDArray[np.uint8]
Box = tuple[float, float, float, float]


def coco_tree(root: Path) -> Path:
    """Write three images with four objects to train2017 (one image has none), and one image to val2017."""
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


def coco_folder_tree(root: Path) -> Path:
    """Write the same to `annotations/<split>.json`, with the images in `<split>/`."""
    coco_tree(root)
    for split in ("train", "val"):
        (root / "annotations" / f"instances_{split}2017.json").rename(root / "annotations" / f"{split}.json")
        (root / f"{split}2017").rename(root / split)
    return root


def write_coco(
    path: Path,
    folder: Path,
    images: dict[int, tuple[int, int]],
    annotations: Sequence[dict[str, Any]],
    categories: Sequence[dict[str, Any]] = CATEGORIES,
) -> Path:
    """Write a JSON file and noise images. `images` maps ids to sizes."""
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
    """Return the annotation of a rectangle (left, top, width, height), as a polygon by default."""
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
    """Return the mask of a rectangle of whole pixels."""
    x, y, width, height = (int(value) for value in box)
    mask = np.zeros(size, dtype=np.uint8)
    mask[y : y + height, x : x + width] = 1
    return mask


def run_lengths(mask: Mask) -> dict[str, Any]:
    """Return a mask as COCO's uncompressed run lengths."""
    flat = np.concatenate([[0], mask.ravel(order="F"), [2]])
    changes = np.flatnonzero(np.diff(flat)).tolist()
    starts = [0, *changes]
    return {"size": list(mask.shape), "counts": np.diff(starts).tolist()}


def compressed(mask: Mask) -> dict[str, Any]:
    """Return a mask as run lengths compressed by pycocotools."""
    rle = coco_mask.encode(np.asfortranarray(mask))
    return {"size": list(mask.shape), "counts": rle["counts"].decode("ascii")}


def edit(path: Path, key: str, position: int, **changes: Any) -> None:
    """Change one entry of a JSON file. None removes a value."""
    content = json.loads(path.read_text())
    entry = {**content[key][position], **changes}
    content[key][position] = {name: value for name, value in entry.items() if value is not None}
    path.write_text(json.dumps(content))


def shapes_tree(root: Path, count: int = 4) -> Path:
    """Write images of two or three coloured squares and discs on noise, the same in train2017 and val2017."""
    rng = np.random.default_rng(0)
    height, width = 96, 128
    y, x = np.mgrid[:height, :width]
    entries, annotations, images = [], [], {}
    for image in range(1, count + 1):
        pixels = rng.integers(90, 130, (height, width, 3), dtype=np.uint8)
        for place in range(2 + image % 2):
            category = (3, 9)[int(rng.integers(2))]
            side = int(rng.integers(24, 36))
            left, top = 4 + 41 * place, int(rng.integers(4, height - side - 4))
            if category == 3:
                mask = (x >= left) & (x < left + side) & (y >= top) & (y < top + side)
            else:
                mask = (x - left - side / 2) ** 2 + (y - top - side / 2) ** 2 < (side / 2) ** 2
            pixels[mask] = (230, 60, 50) if category == 3 else (50, 90, 220)
            drawn = mask.astype(np.uint8)
            annotations.append(
                annotation(
                    len(annotations) + 1, image, category, (left, top, side, side), segmentation=compressed(drawn)
                )
            )
        images[image] = pixels
        entries.append({"id": image, "file_name": f"{image:012}.png", "height": height, "width": width})
    categories = [{"id": 3, "name": "square"}, {"id": 9, "name": "disc"}]
    for split in ("train2017", "val2017"):
        for image, pixels in images.items():
            save(root / split / f"{image:012}.png", pixels)
        path = root / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"images": entries, "annotations": annotations, "categories": categories}))
    return root
