"""Labels of anchors and losses of heads, compared with the formulas and with torchvision."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork

from dnlnet.backbones import Backbone
from dnlnet.detection.network import Detector
from dnlnet.detection.schema import DetectorModel

SIZES = ((64, 96), (96, 64))  # two images, padded to 96 x 96
IGNORED = -1


@pytest.fixture(scope="module")
def built() -> Detector:
    torch.manual_seed(0)
    return Detector(Backbone("resnet18", 32), 3, DetectorModel(variant=None, boxes=16, proposals=20)).double().train()


@pytest.fixture
def model(built: Detector, monkeypatch: pytest.MonkeyPatch) -> Detector:
    """Return the model with the settings of the authors' code."""
    torch.manual_seed(0)
    monkeypatch.setattr(built.rpn, "border_anchors", False)
    monkeypatch.setattr(built.rpn, "min_overlap", 0.3)
    return built


def target(*boxes: tuple[float, ...]) -> dict[str, Tensor]:
    masks = torch.zeros(len(boxes), 96, 96, dtype=torch.uint8)
    masks[:, 10:40, 10:40] = 1
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4),
        "labels": torch.arange(len(boxes)) % 3 + 1,
        "masks": masks,
    }


TARGETS = [target((4, 6, 40, 50), (50, 20, 90, 60), (30, 30, 36, 36)), target((0, 60, 20, 96))]


def images(sizes: tuple[tuple[int, int], ...] = SIZES) -> ImageList:
    return ImageList(torch.zeros(2, 3, 96, 96), list(sizes))


def features() -> dict[str, Tensor]:
    """Return maps of strides 4 to 64."""
    sides = {"0": 24, "1": 12, "2": 6, "3": 3, "pool": 2}
    return {name: torch.rand(2, 256, side, side, dtype=torch.float64) for name, side in sides.items()}


def labels_of(
    model: Detector,
    targets: list[dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[tuple[int, int], ...] = SIZES,
) -> list:
    """Return each image's anchors and the labels used in the loss."""
    seen: dict[str, Any] = {}
    assign = model.rpn.assign_targets_to_anchors

    def note(anchors: list[Tensor], targets: list[dict[str, Any]]) -> Any:
        assigned = assign(anchors, targets)
        seen.update(anchors=anchors, labels=assigned[0])
        return assigned

    monkeypatch.setattr(model.rpn, "assign_targets_to_anchors", note)
    model.rpn(images(sizes), features(), targets)
    return list(zip(seen["anchors"], seen["labels"], strict=True))


def overlap(a: list[float], b: list[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def expected_labels(
    anchors: list[list[float]], objects: list[list[float]], size: tuple[int, int], lowest: float
) -> list[int]:
    """Label the anchors inside the image like mmdetection's MaxIoUAssigner with thresholds 0.7 and 0.3."""
    height, width = size
    inside = [a[0] >= 0 and a[1] >= 0 and a[2] <= width and a[3] <= height for a in anchors]
    overlaps = [
        [overlap(a, one) if fits else -1.0 for one in objects] for a, fits in zip(anchors, inside, strict=True)
    ]
    best = [max(row[number] for row in overlaps) for number in range(len(objects))]
    found = []
    for row, fits in zip(overlaps, inside, strict=True):
        nearest = any(value == top >= lowest for value, top in zip(row, best, strict=True))
        known = 1 if max(row) >= 0.7 or nearest else 0 if max(row) < 0.3 else IGNORED
        found.append(known if fits else IGNORED)
    return found


def test_anchors_that_cross_the_border_are_ignored_and_weak_ones_are_not_positive(
    model: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for (anchors, labels), one, size in zip(labels_of(model, TARGETS, monkeypatch), TARGETS, SIZES, strict=True):
        expected, weak = (
            expected_labels(anchors.tolist(), one["boxes"].tolist(), size, lowest) for lowest in (0.3, 0.0)
        )
        assert labels.tolist() == expected
        assert set(expected) == {IGNORED, 0, 1}
        assert (expected != weak) == (one is TARGETS[0])  # its small object covers 36 of an anchor's 1,024 pixels


def test_an_image_smaller_than_every_anchor_keeps_all_anchors(
    model: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [target((1, 1, 9, 9)), target()]
    monkeypatch.setattr(model.rpn, "min_overlap", 0.0)
    (anchors, labels), (_, others) = labels_of(model, small, monkeypatch, ((10, 10), (96, 64)))
    assert anchors[:, 2:].sub(anchors[:, :2]).amin() > 10
    assert set(labels.tolist()) == {0, 1}
    assert set(others.tolist()) == {IGNORED, 0}


def heads_of(model: Detector, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the losses of the heads and the inputs of the box loss."""
    seen: dict[str, Any] = {}
    predict = model.roi_heads.box_predictor.forward
    select = model.roi_heads.select_training_samples

    def note(*arguments: Any) -> Any:
        selected = select(*arguments)
        seen.update(labels=torch.cat(selected[2]), offsets=torch.cat(selected[3]))
        return selected

    monkeypatch.setattr(model.roi_heads, "select_training_samples", note)
    monkeypatch.setattr(model.roi_heads.box_predictor, "forward", lambda x: seen.setdefault("predicted", predict(x)))
    return model.roi_heads(features(), boxes(), list(SIZES), TARGETS)[1], seen


def boxes() -> list[Tensor]:
    """Return proposals near the objects, and one elsewhere."""
    return [torch.cat([one["boxes"] + 5, torch.tensor([[60.0, 2, 80, 20]])]) for one in TARGETS]


@pytest.mark.parametrize("beta", [1.0, 1 / 9])
def test_the_box_loss_is_smooth_l1_with_this_beta(
    beta: float, model: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.roi_heads, "box_beta", beta)
    losses, seen = heads_of(model, monkeypatch)
    total, kinds = 0.0, set()
    for label, offsets, found in zip(seen["labels"], seen["offsets"], seen["predicted"][1], strict=True):
        if label > 0:
            for wanted, value in zip(offsets.tolist(), found[4 * label : 4 * label + 4].tolist(), strict=True):
                d = abs(value - wanted)
                kinds.add(d < beta)
                total += d * d / (2 * beta) if d < beta else d - beta / 2
    assert kinds == {True, False}
    assert losses["loss_box_reg"].item() == pytest.approx(total / len(seen["labels"]), rel=1e-12)


@pytest.mark.parametrize(("part", "theirs"), [("rpn", RegionProposalNetwork), ("roi_heads", RoIHeads)])
def test_the_defaults_are_torchvisions(
    part: str, theirs: type, built: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (images(), features(), TARGETS) if part == "rpn" else (features(), boxes(), list(SIZES), TARGETS)
    module, losses = getattr(built, part), []
    for kind in (type(module), theirs):
        monkeypatch.setattr(module, "__class__", kind)
        torch.manual_seed(1)
        losses.append(module(*given)[1])
    assert losses[0] == losses[1]
    with torch.device("meta"):
        whole = MaskRCNN(resnet_fpn_backbone(backbone_name="resnet18", weights=None), num_classes=4)
        ours = Detector(Backbone("resnet18", 32), 3, DetectorModel(variant=None))
    values = [settings_of(getattr(model, part)) for model in (ours, whole)]
    assert values[0] == values[1] | {name: values[0][name] for name in values[0].keys() - values[1].keys()}


def settings_of(module: nn.Module) -> dict[str, Any]:
    """Return the numbers in a module and in its matcher, sampler and box coder."""
    parts = [module, *(getattr(module, name) for name in ("proposal_matcher", "fg_bg_sampler", "box_coder"))]
    return {
        f"{type(part).__name__ if part is not module else ''}.{name}": value
        for part in parts
        for name, value in vars(part).items()
        if isinstance(value, float | int | tuple | dict) and name not in ("_parameters", "_buffers", "_modules")
    }
