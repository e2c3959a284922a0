import json
import math
import sys
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor

from coco_trees import annotation, compressed, rectangle
from dnlnet.detection.metric import AveragePrecision

SIZE = (160, 200)
STATISTICS = ("AP", "AP50", "AP75", "APs", "APm", "APl")
Found = tuple[int, float, tuple[float, float, float, float]]  # label, score, box


def truth_of(*annotations: dict[str, Any], images: int = 3) -> dict[str, Any]:
    """Return images 1, 2, ... of `SIZE` with categories 3 (label 1) and 9 (label 2)."""
    return {
        "images": [{"id": number, "height": SIZE[0], "width": SIZE[1]} for number in range(1, images + 1)],
        "categories": [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}],
        "annotations": list(annotations),
    }


def find(metric: AveragePrecision, image: int, *found: Found) -> None:
    """Update the metric with rectangles."""
    masks = [torch.from_numpy(rectangle(SIZE, box)) for _, _, box in found]
    metric.update(
        image,
        torch.tensor([(x, y, x + width, y + height) for _, _, (x, y, width, height) in found]).reshape(-1, 4),
        torch.tensor([label for label, _, _ in found], dtype=torch.int64),
        torch.tensor([score for _, score, _ in found]),
        torch.stack(masks) if masks else torch.zeros(0, *SIZE),
    )


def reference_scores(truth: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, float]:
    """Score boxes, and masks without boxes, with pycocotools alone, as for COCO."""
    scores: dict[str, float] = {}
    with redirect_stdout(StringIO()):
        for kind, name in (("bbox", "box"), ("segm", "mask")):
            coco = COCO()
            coco.dataset = deepcopy(truth)
            coco.createIndex()
            kept = [{key: row[key] for key in row if kind == "bbox" or key != "bbox"} for row in deepcopy(results)]
            evaluation = COCOeval(coco, coco.loadRes(kept), kind)
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
            values = [math.nan if value == -1 else float(value) for value in evaluation.stats[:6]]
            scores |= {f"{name} {statistic}": value for statistic, value in zip(STATISTICS, values, strict=True)}
    return scores


BOXES: dict[str, tuple[float, float, float, float]] = {
    "small": (10, 10, 20, 20),
    "medium": (40, 20, 60, 50),
    "large": (60, 40, 120, 110),
}


@pytest.fixture
def truth() -> dict[str, Any]:
    """Return a small cat and a large dog in image 1, a medium cat in image 2, and a crowd of cats in image 3."""
    return truth_of(
        annotation(1, 1, 3, BOXES["small"]),
        annotation(2, 1, 9, BOXES["large"]),
        annotation(3, 2, 3, BOXES["medium"]),
        annotation(4, 3, 3, BOXES["large"], iscrowd=1, segmentation=compressed(rectangle(SIZE, BOXES["large"]))),
    )


def perfect(truth: dict[str, Any]) -> AveragePrecision:
    """Find every object exactly."""
    metric = AveragePrecision(truth)
    find(metric, 1, (1, 0.9, BOXES["small"]), (2, 0.8, BOXES["large"]))
    find(metric, 2, (1, 0.7, BOXES["medium"]))
    find(metric, 3)
    return metric


def test_perfect_detections_score_one(truth: dict[str, Any]) -> None:
    scores = perfect(truth).scores()
    assert list(scores) == [f"{kind} {name}" for kind in ("box", "mask") for name in STATISTICS]
    assert list(scores.values()) == pytest.approx([1.0] * 12)


def test_half_of_the_objects_found_is_half_a_score() -> None:
    truth = truth_of(annotation(1, 1, 3, BOXES["medium"]), annotation(2, 2, 9, BOXES["medium"]))
    metric = AveragePrecision(truth)
    find(metric, 1, (1, 0.9, BOXES["medium"]))
    assert metric.scores()["box AP"] == metric.scores()["mask AP"] == pytest.approx(0.5)
    assert metric.class_scores("box") == [pytest.approx(1.0), 0.0]


def test_a_box_of_iou_06_counts_up_to_06() -> None:
    metric = AveragePrecision(truth_of(annotation(1, 1, 3, (40, 20, 50, 50))))
    find(metric, 1, (1, 0.9, (40, 20, 50, 31)))  # IoU 0.62: correct at 0.5, 0.55 and 0.6
    scores = metric.scores()
    assert [scores[f"box {name}"] for name in ("AP", "AP50", "AP75")] == pytest.approx([0.3, 1, 0])
    assert [scores[f"mask {name}"] for name in ("AP", "AP50", "AP75")] == pytest.approx([0.3, 1, 0])


def test_box_and_mask_are_scored_separately() -> None:
    metric = AveragePrecision(truth_of(annotation(1, 1, 3, BOXES["medium"])))
    mask = torch.from_numpy(rectangle(SIZE, BOXES["large"]))[None]
    metric.update(1, torch.tensor([[40.0, 20, 100, 70]]), torch.tensor([1]), torch.tensor([0.5]), mask)
    assert (metric.scores()["box AP"], metric.scores()["mask AP"]) == (pytest.approx(1), 0)


def test_detections_in_crowds_do_not_count(truth: dict[str, Any]) -> None:
    metric = perfect(truth)
    del metric.detections[3]
    find(metric, 3, (1, 0.95, (70, 50, 30, 30)), (1, 0.94, (100, 60, 40, 40)))  # both in the crowd
    assert metric.scores()["box AP"] == metric.scores()["mask AP"] == pytest.approx(1)


def test_small_medium_and_large_objects_are_scored_separately(truth: dict[str, Any]) -> None:
    metric = AveragePrecision(truth)
    find(metric, 1, (2, 0.8, BOXES["large"]))
    find(metric, 2, (1, 0.7, BOXES["medium"]))
    scores = metric.scores()
    assert [scores[f"box {name}"] for name in ("APs", "APm", "APl")] == pytest.approx([0, 1, 1])


def test_absent_sizes_are_nan_and_none() -> None:
    metric = AveragePrecision(truth_of(annotation(1, 1, 3, BOXES["medium"])))
    find(metric, 1, (1, 0.9, BOXES["medium"]))
    assert [math.isnan(metric.scores()[f"mask {name}"]) for name in STATISTICS] == [False] * 3 + [True, False, True]
    assert metric.known_scores()["mask APs"] is metric.known_scores()["box APl"] is None
    assert metric.class_scores("mask") == [pytest.approx(1), None]


def test_no_detections_at_all_score_zero(truth: dict[str, Any]) -> None:
    metric = AveragePrecision(truth)
    assert list(metric.scores().values()) == [0] * 12
    for image in (1, 2, 3):
        find(metric, image)
    assert list(metric.scores().values()) == [0] * 12
    assert metric.results() == []


def test_nothing_to_find_gives_nan() -> None:
    metric = AveragePrecision(truth_of())
    find(metric, 1, (1, 0.9, BOXES["small"]))
    assert all(math.isnan(value) for value in metric.scores().values())


def random_case(seed: int) -> tuple[dict[str, Any], dict[int, list[Found]]]:
    """Return objects, and detections both near and far from them."""
    rng = np.random.default_rng(seed)

    def box() -> tuple[float, float, float, float]:
        width, height = (int(2 ** rng.uniform(2, 7)) for _ in range(2))
        return int(rng.integers(SIZE[1] - width)), int(rng.integers(SIZE[0] - height)), width, height

    objects, found = [], {}
    for image in range(1, 13):
        found[image] = []
        for _ in range(rng.integers(6)):
            label, (x, y, width, height) = int(rng.integers(1, 3)), box()
            category = (3, 9)[label - 1]
            crowd = int(rng.random() < 0.15)
            entry = annotation(len(objects) + 1, image, category, (x, y, width, height), iscrowd=crowd)
            if crowd:
                entry["segmentation"] = compressed(rectangle(SIZE, (x, y, width, height)))
            objects.append(entry)
            near = (x, y, max(1, width - int(rng.integers(4))), max(1, height - int(rng.integers(4))))
            found[image].append((label if rng.random() < 0.9 else 3 - label, float(rng.integers(10)) / 10, near))
        found[image] += [(int(rng.integers(1, 3)), float(rng.integers(10)) / 10, box()) for _ in range(2)]
    return truth_of(*objects, images=12), found


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_pycocotools(seed: int) -> None:
    truth, found = random_case(seed)
    metric = AveragePrecision(truth)
    for image, detections in found.items():
        find(metric, image, *detections)
    scores = metric.scores()
    assert scores == pytest.approx(reference_scores(truth, metric.results()), nan_ok=True, abs=1e-12)
    assert 0.05 < scores["box AP"] < 0.95


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_merged_processes_score_like_one(processes: int) -> None:
    truth, found = random_case(seed=9)
    whole = AveragePrecision(truth)
    for image in reversed(found):
        find(whole, image, *found[image])
    parts = [AveragePrecision(truth) for _ in range(processes)]
    for image, detections in found.items():
        find(parts[image % processes], image, *detections)
    shares = [part.detections for part in parts]
    for part in parts:
        part.merge(lambda _: shares)
        assert part.scores() == whole.scores()
        assert part.results() == whole.results()
        assert list(part.detections) == sorted(found)


def test_hundreds_of_detections_can_be_scored() -> None:
    metric = AveragePrecision(truth_of(annotation(1, 1, 3, BOXES["small"])))
    find(metric, 1, *[(1, 0.5, BOXES["small"])] * 300)
    assert metric.scores()["mask AP50"] == pytest.approx(1)


def test_more_detections_change_the_score(truth: dict[str, Any]) -> None:
    metric = AveragePrecision(truth)
    find(metric, 1, (1, 0.9, BOXES["small"]), (2, 0.8, BOXES["large"]))
    first = metric.scores()["box AP"]
    find(metric, 2, (1, 0.7, BOXES["medium"]))
    assert metric.scores()["box AP"] > first


def test_objects_count_for_any_id(truth: dict[str, Any]) -> None:
    for numbers in ((0, 1, 2, 3), (5, 5, 5, 5)):
        for entry, number in zip(truth["annotations"], numbers, strict=True):
            entry["id"] = number
        assert perfect(truth).scores()["box AP"] == pytest.approx(1)
    for entry in truth["annotations"]:
        del entry["id"]
    before = deepcopy(truth)
    assert perfect(truth).scores()["mask AP"] == pytest.approx(1)
    assert truth == before  # pycocotools would modify it


def test_results_are_in_cocos_format(truth: dict[str, Any]) -> None:
    results = perfect(truth).results()
    assert [row["category_id"] for row in results] == [3, 9, 3]
    assert results[0] == {
        "image_id": 1,
        "category_id": 3,
        "score": pytest.approx(0.9),
        "bbox": [10, 10, 20, 20],
        "segmentation": compressed(rectangle(SIZE, BOXES["small"])),
    }
    assert json.loads(json.dumps(results)) == results


def test_nothing_is_printed(truth: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    perfect(truth).scores()
    assert capsys.readouterr().out == ""


def test_masks_may_have_a_channel_and_be_bool(truth: dict[str, Any]) -> None:
    metric = AveragePrecision(truth)
    mask: Tensor = torch.from_numpy(rectangle(SIZE, BOXES["medium"])).bool()[None, None]
    metric.update(2, torch.tensor([[40.0, 20, 100, 70]]), torch.tensor([1]), torch.tensor([0.5]), mask)
    assert metric.results()[0]["segmentation"] == compressed(rectangle(SIZE, BOXES["medium"]))


def test_inconsistent_detections_are_refused(truth: dict[str, Any]) -> None:
    metric = AveragePrecision(truth)
    with pytest.raises(ValueError, match=r"image 99 .* 3 images"):
        find(metric, 99)
    with pytest.raises(ValueError, match=r"label 3 is outside 1\.\.2"):
        find(metric, 1, (3, 0.5, BOXES["small"]))
    with pytest.raises(ValueError, match=r"masks of 4 x 5 for image 1 of 160 x 200"):
        metric.update(1, torch.zeros(1, 4), torch.ones(1), torch.ones(1), torch.zeros(1, 4, 5))
    with pytest.raises(ValueError, match="image 1 has 2 boxes, 1 labels, 1 scores, 1 masks"):
        metric.update(1, torch.zeros(2, 4), torch.ones(1), torch.ones(1), torch.zeros(1, *SIZE))
    find(metric, 1)
    with pytest.raises(ValueError, match="image 1 was given twice"):
        find(metric, 1)
    with pytest.raises(ValueError, match="image 1 was given twice"):
        metric.merge(lambda mine: [mine, mine])


def test_without_pycocotools_the_extra_is_named(truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.cocoeval", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "dnlnet\[detection\]"'):
        perfect(truth).scores()


def test_real_objects_score_one_against_themselves(real_data: Path) -> None:
    from dnlnet.detection.data.coco import open_coco

    images = open_coco(real_data / "coco_micro", "val2017")
    metric = AveragePrecision(images.truth())
    for index, image in enumerate(images.images):
        target = images.target(index)
        real = target.iscrowd == 0
        parts = (target.boxes, target.labels, np.ones(len(target), dtype=np.float32), target.masks)
        metric.update(image.id, *(torch.from_numpy(part[real]) for part in parts))
    assert metric.scores() == pytest.approx(dict.fromkeys(metric.scores(), 1.0))
    path = real_data / "coco_micro" / "annotations" / "instances_val2017.json"
    assert metric.scores() == pytest.approx(
        reference_scores(json.loads(path.read_text()), metric.results()), abs=1e-12
    )
