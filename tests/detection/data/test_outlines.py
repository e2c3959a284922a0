import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from coco_trees import WIDE, annotation, compressed, rectangle, run_lengths
from dnlnet.detection.data.coco import SPLITS, open_coco
from dnlnet.detection.data.outlines import Outline, Polygons, RunLengths, count_pixels, decompressed, draw_masks

Counts = list[int]


def coco_of(size: tuple[int, int], segmentations: list[Any]) -> COCO:
    """Read an image with these objects using pycocotools."""
    height, width = size
    coco = COCO()
    objects = [{"id": n, "image_id": 1, "category_id": 1, "segmentation": s} for n, s in enumerate(segmentations, 1)]
    coco.dataset = {
        "images": [{"id": 1, "height": height, "width": width}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": objects,
    }
    coco.createIndex()
    return coco


def with_empty_runs(counts: Counts, rng: np.random.Generator) -> Counts:
    """Insert two empty runs."""
    place = int(rng.integers(len(counts) + 1))
    return [*counts[:place], 0, 0, *counts[place:]]


@pytest.mark.parametrize("seed", range(10))
def test_polygons_are_drawn_like_pycocotools(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = size = int(rng.integers(1, 60)), int(rng.integers(1, 60))
    objects = [
        [rng.uniform(-0.2, 1.2, (points, 2)) * (width, height) for points in rng.integers(3, 12, rng.integers(1, 4))]
        for _ in range(8)
    ]
    coco = coco_of(size, [[part.ravel().tolist() for part in parts] for parts in objects])
    for entry, parts in zip(coco.dataset["annotations"], objects, strict=True):
        outline = Polygons(tuple(part.ravel() for part in parts))
        expected = coco.annToMask(entry)
        np.testing.assert_array_equal(outline.mask(size, size), expected)
        assert outline.rle(size)["counts"].encode() == coco.annToRLE(entry)["counts"]
        assert count_pixels(outline, size) == expected.sum()


@pytest.mark.parametrize("seed", range(10))
def test_run_lengths_are_read_like_pycocotools(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape: tuple[int, int] = (int(rng.integers(1, 20)), int(rng.integers(1, 20)))
    for _ in range(8):
        counts = with_empty_runs(run_lengths((rng.random(shape) > rng.random()).astype(np.uint8))["counts"], rng)
        outline = RunLengths(shape, np.array(counts))
        coco = coco_of(shape, [{"size": list(shape), "counts": counts}])
        expected = coco.annToMask(coco.dataset["annotations"][0])
        np.testing.assert_array_equal(outline.mask(shape, shape), expected)
        assert count_pixels(outline, shape) == outline.area() == expected.sum()
        rows, columns = np.nonzero(expected)
        box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if expected.any() else None
        assert outline.bounds() == box


def test_run_lengths_are_resized_to_the_nearest_pixel() -> None:
    mask = np.random.default_rng(0).integers(0, 2, WIDE, dtype=np.uint8)
    runs = RunLengths(WIDE, np.array(run_lengths(mask)["counts"]))
    expected = np.asarray(Image.fromarray(mask).resize((31, 77), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(runs.mask(WIDE, (77, 31)), expected)


def test_real_objects_are_drawn_like_pycocotools(real_data: Path) -> None:
    for split in SPLITS:
        coco = COCO(real_data / "coco_micro" / "annotations" / f"instances_{split}.json")
        for image in open_coco(real_data / "coco_micro", split).images:
            for one in image.instances:
                entry = coco.anns[one.id]
                assert one.outline.rle(image.size)["counts"].encode() == coco.annToRLE(entry)["counts"]
                np.testing.assert_array_equal(one.outline.mask(image.size, image.size), coco.annToMask(entry))


def test_areas_of_real_polygons_equal_those_in_the_file(real_data: Path) -> None:
    """COCO stores the area of the polygons, not the number of pixels that pycocotools draws."""
    content = json.loads((real_data / "coco_micro" / "annotations" / "instances_val2017.json").read_bytes())
    polygons = [one for one in content["annotations"] if isinstance(one["segmentation"], list)]
    assert len(polygons) == 896
    for one in polygons:
        assert Polygons(tuple(map(np.array, one["segmentation"]))).area() == pytest.approx(one["area"], rel=1e-9)


@pytest.mark.parametrize(
    "outline", [Polygons((np.array([1.0, 1, 9, 1, 9, 9]),)), RunLengths((2, 2), np.array([1, 3]))]
)
def test_without_pycocotools_the_extra_is_named(outline: Outline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)
    with pytest.raises(ModuleNotFoundError, match=r'pycocotools .*pip install "dnlnet\[detection\]"'):
        draw_masks([outline], (2, 2), (2, 2))


@pytest.mark.parametrize("seed", range(20))
def test_text_written_by_pycocotools_is_decoded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = (rng.random(rng.integers(1, 90, 2)) > rng.random()).astype(np.uint8)
    size: tuple[int, int] = mask.shape
    runs = RunLengths(size, decompressed(compressed(mask)["counts"]))
    np.testing.assert_array_equal(runs.mask(size, size), mask)
    assert runs.counts.tolist() == run_lengths(mask)["counts"]
    assert runs.rle(size) == compressed(mask)
    assert runs.area() == mask.sum()


def test_bounds_of_outlines() -> None:
    box = (4.0, 3.0, 10.0, 7.0)
    polygons = Polygons((np.array(annotation(0, 0, 0, box)["segmentation"][0]), np.array([0.0, 0])))
    runs = RunLengths(WIDE, np.array(run_lengths(rectangle(WIDE, box))["counts"]))
    assert polygons.bounds() == runs.bounds() == (4, 3, 14, 10)
    assert Polygons(()).bounds() is None
    assert RunLengths((2, 2), np.array([4])).bounds() is None


def test_impossible_outlines_are_refused() -> None:
    far = Polygons((np.array([0.0, 0, 1e300, 0, 0, 9]),))
    with pytest.raises(ValueError, match=r"the point \(1e\+300, 0\)"):
        far.rle(WIDE)
    with pytest.raises(ValueError, match="the point"):
        far.mask(WIDE, (80, 120))
    with pytest.raises(ValueError, match="1000000000 x 60 "):
        Polygons(()).rle((10**9, 60))
    with pytest.raises(ValueError, match=r"2 x 2 .* 40 x 60"):
        RunLengths((2, 2), np.array([4])).rle(WIDE)
