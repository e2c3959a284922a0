"""Blocks in the models of timm, torchvision and segmentation_models_pytorch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import segmentation_models_pytorch as smp
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import detection, segmentation

from dnlnet import insert

IMAGES = (2, 3, 64, 64)
IMAGE_BATCH = torch.linspace(-1, 1, 2 * 3 * 64 * 64).sin().view(IMAGES)


def classes_of_image(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(torch.rand(IMAGES)), torch.tensor([0, 3]))


def classes_of_pixels(model: nn.Module) -> Tensor:
    output = model(torch.rand(IMAGES))
    return F.cross_entropy(output["out"] if isinstance(output, dict) else output, torch.randint(5, (2, 64, 64)))


def objects(model: nn.Module) -> Tensor:
    target = {"boxes": torch.tensor([[10.0, 10, 60, 70]]), "labels": torch.tensor([1])}
    losses = model([torch.rand(3, 96, 128) for _ in range(2)], [target, target])
    return torch.stack(list(losses.values())).sum()


def small_faster_rcnn() -> nn.Module:
    # The default resizes every image to 320 pixels; keep them small. Compare even random boxes.
    return detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=5,
        min_size=96,
        max_size=128,
        rpn_post_nms_top_n_train=32,
        rpn_post_nms_top_n_test=8,
        box_score_thresh=0.0,
    )


@dataclass(frozen=True)
class Case:
    """A model, two places as `insert` and its state dict name them, and the loss of a training step."""

    build: Callable[[], nn.Module]
    places: dict[str, str]
    loss: Callable[[nn.Module], Tensor]
    example: Tensor | list[Tensor] = IMAGE_BATCH


CASES = {
    "timm resnet": Case(
        lambda: timm.create_model("resnet18", num_classes=5),
        {"layer3.0": "layer3.0", "layer4": "layer4.1"},
        classes_of_image,
    ),
    "timm convnext": Case(
        lambda: timm.create_model("convnext_atto", num_classes=5),
        {"stages.1": "stages.1", "stages.2.blocks.3": "stages.2.blocks.3"},
        classes_of_image,
    ),
    "timm efficientnet": Case(
        lambda: timm.create_model("efficientnet_b0", num_classes=5),
        {"blocks.4": "blocks.4.2", "blocks.2.0": "blocks.2.0"},
        classes_of_image,
    ),
    "torchvision deeplabv3": Case(
        lambda: segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5),
        {"backbone.12": "backbone.12", "classifier.0": "classifier.0"},
        classes_of_pixels,
    ),
    "torchvision faster r-cnn": Case(
        small_faster_rcnn,
        {"backbone.body.12": "backbone.body.12", "backbone.fpn.layer_blocks.0": "backbone.fpn.layer_blocks.0.0"},
        objects,
        [torch.linspace(0, 1, 3 * 96 * 128).view(3, 96, 128)],
    ),
    "smp unet": Case(
        lambda: smp.Unet("resnet18", encoder_weights=None, classes=5),
        {"encoder.layer3": "encoder.layer3.1", "decoder.blocks.0": "decoder.blocks.0"},
        classes_of_pixels,
    ),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    torch.manual_seed(0)
    return CASES[request.param]


def inserted(case: Case, gate: str = "scalar") -> nn.Module:
    model = case.build()
    insert(model, dict.fromkeys(case.places, "dnl"), gate=gate)
    return model.eval()


@torch.no_grad()
def outputs(model: nn.Module, case: Case) -> list[Tensor]:
    found: Any = model(case.example)
    if isinstance(found, Tensor):
        return [found]
    return [tensor for part in (found if isinstance(found, list) else [found]) for tensor in part.values()]


def test_weights_load_as_before_and_a_zero_gate_keeps_every_bit(case: Case) -> None:
    plain = case.build().eval()
    model = inserted(case)
    result = model.load_state_dict(plain.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert {key.split(".non_local.")[0] for key in result.missing_keys} == set(case.places.values())
    assert all(".non_local." in key for key in result.missing_keys)
    before, after = outputs(plain, case), outputs(model, case)
    assert sum(tensor.numel() for tensor in before) > 0
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    with torch.no_grad():
        for place in case.places.values():
            model.get_submodule(f"{place}.non_local").gamma.fill_(100)
    changed = outputs(model, case)
    assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(before, changed, strict=True))


def test_a_training_step_reaches_every_parameter_of_the_blocks(case: Case) -> None:
    model = inserted(case).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = case.loss(model)
    loss.backward()
    assert loss.isfinite()
    own = {name: value for name, value in model.named_parameters() if ".non_local." in name}
    assert len(own) == 16  # query, key, saliency with bias, value without bias, and gamma, in two blocks
    assert all(value.grad is not None and value.grad.isfinite().all() for value in own.values())
    optimizer.step()
    assert all(value.item() != 0 for name, value in own.items() if name.endswith("gamma"))


def test_a_saved_model_loads_into_another_with_blocks(case: Case) -> None:
    model, other = inserted(case, gate="none"), inserted(case, gate="none")
    other.load_state_dict(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(outputs(model, case), outputs(other, case), strict=True))


def test_a_place_in_a_detectors_backbone_needs_no_example_and_keeps_its_anchors() -> None:
    model = small_faster_rcnn().eval()
    with pytest.raises(ValueError, match=r"the model did not run on an input of shape \(1, 3, 224, 224\)"):
        insert(model, {"roi_heads.box_head": "dnl"})  # only proposals reach this place, and meta tensors give none
    assert all(anchors.device.type == "cpu" for anchors in model.rpn.anchor_generator.cell_anchors)
    with pytest.raises(ValueError, match=r"'roi_heads.box_head' returns a tensor of shape \(\d+, 1024\); a block"):
        insert(model, {"roi_heads.box_head": "dnl"}, example=[torch.rand(3, 96, 128)])
    block = insert(model, {"roi_heads.box_head": "dnl"}, example=[torch.rand(3, 96, 128)], before=True)
    assert block["roi_heads.box_head"].channels == 256
    assert model([torch.rand(3, 96, 128)])[0]["boxes"].shape[1] == 4


@pytest.mark.parametrize(
    ("build", "place", "before", "message"),
    [
        (lambda: timm.create_model("convnext_tiny"), "stages.1.blocks.0.mlp", False, r"returns .*28, 28, 192\)"),
        (lambda: timm.create_model("convnext_tiny"), "stages.1.blocks.0.mlp", True, r"receives .*28, 28, 192\)"),
        (lambda: timm.create_model("vit_tiny_patch16_224"), "blocks.2", False, r"returns .*\(1, 197, 192\)"),
    ],
)
def test_a_place_with_channels_last_is_refused(build: Any, place: str, before: bool, message: str) -> None:
    with torch.device("meta"):
        model = build()
    with pytest.raises(ValueError, match=message + r", channels last; a block needs \(B, C, L\), \(B, C, H, W\)"):
        insert(model, {place: "dnl"}, before=before)
