from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import box_iou

from dnlnet.attention import NonLocalBlock
from dnlnet.backbones import Backbone
from dnlnet.detection.network import PLACEMENTS, Detector, insert_blocks
from dnlnet.detection.schema import DetectorModel
from dnlnet.registry import find_recipe

BLOCKS = {
    "c4_one": (1, 0),
    "c5_all": (0, 3),
    "c4_one_c5_all": (1, 3),
    "c4c5_all": (6, 3),
}  # channels: 1024 and 2048
INNER = ("query", "key", "value")


def detector(variant: str | None, backbone: str = "resnet50", **settings: Any) -> Detector:
    return Detector(Backbone(backbone, 32), 3, DetectorModel(variant=variant, **settings))


def build(variant: str | None, **settings: Any) -> Detector:
    with torch.device("meta"):
        return detector(variant, **settings)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def block_parameters(variant: str, channels: int) -> int:
    """Count by hand: query and key of a quarter of the width with bias, value without, saliency with bias, gamma."""
    embed = channels // 4
    qk, value, saliency = 2 * (channels * embed + embed), channels * channels, channels + 1
    return {
        "nl": qk + value + 1,
        "nl_pairwise": qk + value + 1,
        "nl_unary": qk + value,
        "dnl": qk + value + saliency + 1,
        "gc": value + saliency,
    }[variant]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("variant", ["nl", "nl_pairwise", "nl_unary", "dnl", "gc"])
def test_every_row_has_its_blocks_in_place_and_their_parameters(variant: str, placement: str) -> None:
    model = build(variant, placement=placement)
    blocks = {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}
    c4, c5 = BLOCKS[placement]
    stages = [name.split(".")[3] for name in blocks]
    assert (stages.count("layer3"), stages.count("layer4")) == (c4, c5)
    added = c4 * block_parameters(variant, 1024) + c5 * block_parameters(variant, 2048)
    assert parameters(model) - parameters(build(None)) == added


def recipe_block() -> NonLocalBlock:
    model = find_recipe("coco-r50-nl-c4").model
    torch.manual_seed(0)
    return NonLocalBlock(64, "nl", preset=model.preset, **model.block)


def test_the_nl_block_equals_the_release() -> None:
    """Follow mmdetection 1.0's NonLocal2D: x + W_o softmax(theta.phi / sqrt(C/4)) g, all four with bias."""
    block, x = recipe_block().double(), torch.randn(2, 64, 5, 7, dtype=torch.float64)
    shapes = {name: tuple(parameter.shape) for name, parameter in block.named_parameters()}
    inner = {f"{name}.{part}": (16, 64)[: 1 + (part == "weight")] for name in INNER for part in ("weight", "bias")}
    assert shapes == {**inner, "projection.weight": (64, 16), "projection.bias": (64,)}
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    theta, phi, g = (getattr(block, name)(x.flatten(2).mT) for name in INNER)
    y = block.projection((theta @ phi.mT / 4).softmax(dim=2) @ g)
    torch.testing.assert_close(block(x), x + y.mT.reshape(x.shape))


def test_the_nl_block_starts_as_the_identity_and_learns_from_its_projection() -> None:
    block, x = recipe_block(), torch.randn(1, 64, 5, 7)
    assert torch.equal(block(x), x)
    for name in INNER:
        assert getattr(block, name).weight.std().item() == pytest.approx(0.01, rel=0.1)
    block(x).square().sum().backward()
    assert block.projection.weight.grad.abs().sum() > 0


def test_heads_and_batch_norms_follow_the_authors_code() -> None:
    model = build("dnl")
    assert sum(isinstance(layer, nn.Conv2d) for layer in model.roi_heads.box_head.modules()) == 4
    assert sum(isinstance(layer, nn.Linear) for layer in model.roi_heads.box_head.modules()) == 1
    for part in (model.backbone.body, model.backbone.pyramid, model.roi_heads.box_head, model.roi_heads.mask_head):
        assert any(isinstance(layer, nn.BatchNorm2d) for layer in part.modules())


def test_anchors_and_levels_equal_torchvisions_and_scale_with_the_images() -> None:
    with torch.device("meta"):
        torchvisions = MaskRCNN(resnet_fpn_backbone(backbone_name="resnet50", weights=None), num_classes=2)
    ours, small = build("dnl"), build("dnl", anchor=8)
    assert ours.rpn.anchor_generator.sizes == torchvisions.rpn.anchor_generator.sizes
    assert ours.rpn.anchor_generator.aspect_ratios == torchvisions.rpn.anchor_generator.aspect_ratios
    assert small.rpn.anchor_generator.sizes == ((8,), (16,), (32,), (64,), (128,))
    for pool in ("box_roi_pool", "mask_roi_pool"):
        theirs, own = getattr(torchvisions.roi_heads, pool), getattr(ours.roi_heads, pool)
        assert repr(own) == repr(theirs)
        assert own.canonical_scale == theirs.canonical_scale
        assert 4 * getattr(small.roi_heads, pool).canonical_scale == theirs.canonical_scale


def test_one_block_is_before_the_last_residual_block_of_c4() -> None:
    assert insert_blocks(Backbone("resnet50", 32), DetectorModel(variant="dnl")) == ["body.layer3.4"]


@pytest.mark.parametrize("after", [False, True])
def test_a_block_is_before_or_after_the_last_activation(after: bool) -> None:
    torch.manual_seed(0)
    backbone = Backbone("resnet50", 32).eval()
    insert_blocks(backbone, DetectorModel(variant="dnl", after_activation=after, block={"gate": "none"}))
    residual = backbone.body["layer3"][4]
    nn.init.normal_(residual.bn3.weight)  # a zero start would never give negative sums
    block = next(module for module in backbone.modules() if isinstance(module, NonLocalBlock))
    nn.init.normal_(block.value.weight)
    seen: dict[str, torch.Tensor] = {}
    block.register_forward_hook(
        lambda _, inputs, output: seen.update(given=inputs[0].clone(), attended=output.clone())
    )
    residual.register_forward_hook(lambda _, __, output: seen.update(result=output.clone()))
    with torch.no_grad():
        backbone(torch.randn(1, 3, 64, 64))
    assert (seen["given"].min() < 0) == (not after)
    torch.testing.assert_close(seen["result"], seen["attended"] if after else seen["attended"].relu())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_zero_gated_blocks_keep_every_bit(placement: str) -> None:
    torch.manual_seed(0)
    plain = detector(None, proposals=3).eval()
    gated = detector("dnl", placement=placement, proposals=3, block={"gate": "scalar"}).eval()
    missing = gated.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all("non_local" in name for name in missing.missing_keys)
    image = torch.rand(3, 64, 96)
    for model in (plain, gated):
        model.roi_heads.score_thresh = 0.0
    (expected,), (found,) = (model.detect([image], [(64, 96)]) for model in (plain, gated))
    assert len(expected["boxes"]) > 0
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def test_images_are_not_resized_and_detections_have_the_requested_size() -> None:
    torch.manual_seed(0)
    model = detector("gc", proposals=4).eval()
    model.roi_heads.score_thresh = 0.0
    seen = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    images = [torch.rand(3, 50, 90), torch.rand(3, 70, 40)]
    small, large = (model.detect(images, [(50 * k, 90 * k), (70 * k, 40 * k)]) for k in (1, 2))
    assert seen[0] == (2, 3, 96, 96)
    torch.testing.assert_close(2 * small[0]["boxes"], large[0]["boxes"])
    assert large[1]["masks"].shape[-2:] == (140, 80)


def test_training_gives_the_five_losses_and_gradients_to_the_block() -> None:
    torch.manual_seed(0)
    model = detector("dnl", boxes=4, proposals=8).train()
    target = {
        "boxes": torch.tensor([[5.0, 5, 40, 50]]),
        "labels": torch.tensor([2]),
        "masks": torch.ones(1, 64, 64, dtype=torch.uint8),
    }
    losses = model([torch.rand(3, 64, 64)] * 2, [target] * 2)
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_mask", "loss_objectness", "loss_rpn_box_reg"}
    sum(losses.values()).backward()
    block = next(module for module in model.modules() if isinstance(module, NonLocalBlock))
    assert block.saliency.weight.grad.abs().sum() > 0


def test_invalid_detectors_are_refused() -> None:
    with torch.device("meta"):
        with pytest.raises(ValueError, match=r"32.* resnet50"):
            Detector(Backbone("resnet50", 8), 3, DetectorModel())
        with pytest.raises(ValueError, match=r"classes .*0"):
            Detector(Backbone("resnet50", 32), 0, DetectorModel())
    for name, value in (
        ("placement", "c4_all"),
        ("boxes", 0),
        ("proposals", 0),
        ("anchor", 0),
        ("box_beta", 0.0),
        ("min_overlap", -0.1),
        ("min_overlap", 1.1),
    ):
        with pytest.raises(ValueError, match=rf"{name}\n.*input_value={value!r}"):
            DetectorModel(**{name: value})


def test_masks_below_the_threshold_are_never_resized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resized masks of a large image take gigabytes."""
    torch.manual_seed(0)
    network = detector(None, "resnet18", proposals=8).eval()
    image = torch.rand(3, 64, 96)
    (every,) = network.detect([image], [(40, 60)])
    threshold = float(every["scores"].median())
    postprocess, asked = network.transform.postprocess, []

    def count(found, *arguments):
        asked.append(len(found[0]["scores"]))
        return postprocess(found, *arguments)

    monkeypatch.setattr(network.transform, "postprocess", count)
    (some,) = network.detect([image], [(40, 60)], threshold)
    sure = every["scores"] >= threshold
    assert asked == [int(sure.sum())]
    assert 0 < asked[0] < len(sure)
    for name, value in some.items():
        assert torch.equal(value, every[name][sure]), name


def test_a_detector_in_bfloat16_finds_the_same_boxes() -> None:
    torch.manual_seed(0)
    full = detector("dnl", "resnet18", proposals=20).eval()
    half = find_recipe("coco-r50-dnl-c4").in_bfloat16(full)
    image, size = torch.rand(3, 96, 160), (192, 320)
    (expected,), (found,) = (one.detect([image], [size]) for one in (full, half))
    assert [value.dtype for value in found.values()] == [value.dtype for value in expected.values()]
    assert len(expected["boxes"]) > 5
    best = box_iou(expected["boxes"], found["boxes"]).amax(dim=1)
    assert best.median() > 0.98
    assert not torch.equal(found["masks"], expected["masks"])
