"""Comparison with plain PyTorch on tensors with mmdetection's names and boxes that end with their last pixel."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from dnlnet.attention import NonLocalBlock
from dnlnet.conversion.converting import match_network
from dnlnet.conversion.detection.mmdet import FAMILY
from dnlnet.conversion.family import Converted, ForeignCheckpoint
from dnlnet.detection.network import Detector
from dnlnet.detection.recipe import DetectionRecipe
from dnlnet.registry import find_recipe, parse_recipe

State = dict[str, Tensor]
STRIDES = (4, 8, 16, 32, 64)
SIZE = (64, 128)  # multiples of 64, so that anchor positions agree on all levels
CONFIG = """
norm_cfg = dict(type='SyncABN', requires_grad=True)
model = dict(backbone=dict(type='ResNet', style='pytorch', norm_cfg=norm_cfg,
    nlgcb=dict(ratio=1. / 4., downsample=False, whiten_type=['channel'], temp=0.05, with_gc=True)))
img_norm_cfg = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
"""


def shapes(*blocks: str, classes: int = 81) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Return the shapes of all tensors of the baseline and the given blocks."""

    def norm(name: str, channels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        for tensor in ("weight", "bias", "running_mean", "running_var"):
            yield f"{name}.{tensor}", (channels,)

    def affine(name: str, *shape: int, outputs: int | None = None) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", shape
        yield f"{name}.bias", (shape[0] if outputs is None else outputs,)

    yield "backbone.conv1.weight", (64, 3, 7, 7)
    yield from norm("backbone.bn1", 64)
    given = 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for number in range(count):
            name = f"backbone.layer{stage}.{number}"
            yield f"{name}.conv1.weight", (width, given, 1, 1)
            yield from norm(f"{name}.bn1", width)
            yield f"{name}.conv2.weight", (width, width, 3, 3)
            yield from norm(f"{name}.bn2", width)
            yield f"{name}.conv3.weight", (4 * width, width, 1, 1)
            yield from norm(f"{name}.bn3", 4 * width)
            if number == 0:
                yield f"{name}.downsample.0.weight", (4 * width, given, 1, 1)
                yield from norm(f"{name}.downsample.1", 4 * width)
            given = 4 * width
    for level, channels in enumerate((256, 512, 1024, 2048)):
        yield f"neck.lateral_convs.{level}.conv.weight", (256, channels, 1, 1)
        yield from norm(f"neck.lateral_convs.{level}.bn", 256)
        yield f"neck.fpn_convs.{level}.conv.weight", (256, 256, 3, 3)
        yield from norm(f"neck.fpn_convs.{level}.bn", 256)
    yield from affine("rpn_head.rpn_conv", 256, 256, 3, 3)
    yield from affine("rpn_head.rpn_cls", 3, 256, 1, 1)
    yield from affine("rpn_head.rpn_reg", 12, 256, 1, 1)
    for head in ("bbox_head.shared_convs", "mask_head.convs"):
        for number in range(4):
            yield f"{head}.{number}.conv.weight", (256, 256, 3, 3)
            yield from norm(f"{head}.{number}.bn", 256)
    yield from affine("bbox_head.shared_fcs.0", 1024, 256 * 7 * 7)
    yield from affine("bbox_head.fc_cls", classes, 1024)
    yield from affine("bbox_head.fc_reg", 4 * classes, 1024)
    yield from affine("mask_head.upsample", 256, 256, 2, 2)
    yield from affine("mask_head.conv_logits", classes, 256, 1, 1)
    for block in blocks:
        channels = 1024 if "layer3" in block else 2048
        name = f"backbone.{block}"
        if block.endswith("nl_gc_block"):
            yield f"{name}.gamma", (1,)
            yield from affine(f"{name}.conv_query", channels // 4, channels, 1, 1)
            yield from affine(f"{name}.conv_key", channels // 4, channels, 1, 1)
        if block.endswith(("nl_gc_block", "context_block")):
            yield f"{name}.conv_value.weight", (channels, channels, 1, 1)
            yield from affine(f"{name}.conv_mask", 1, channels, 1, 1)
        if block.endswith("nonlocal_block"):
            for layer in ("g", "theta", "phi"):
                yield from affine(f"{name}.{layer}.conv", channels // 4, channels, 1, 1)
            yield from affine(f"{name}.conv_out.conv", channels, channels // 4, 1, 1)


def random_state(*blocks: str, only: str = "") -> State:
    """Return weights that preserve activation sizes. Norm scales have both signs (mmdetection drops the sign)."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in shapes(*blocks):
        if not name.startswith(only):
            continue
        tensor = torch.randn(shape, generator=generator)
        if name.endswith("running_var"):
            tensor = tensor.abs() + 0.5
        elif len(shape) > 1:
            tensor *= math.sqrt(2 / math.prod(shape[1:]))
        elif not name.endswith("gamma"):
            tensor *= 0.5
        state[name] = tensor * 0.1 if "reg.weight" in name else tensor  # boxes of visible size
    return state


def meta_state(*blocks: str) -> State:
    return {name: torch.empty(shape, device="meta") for name, shape in shapes(*blocks)}


def converted(state: State, **meta: object) -> Converted:
    assert FAMILY.matches(state)
    return FAMILY.convert(ForeignCheckpoint(Path("epoch_12.pth"), state, meta))


def built(found: Converted) -> Detector:
    matched = match_network(found)
    assert not matched.unused
    model = found.recipe.build(len(found.classes), pretrained=False)
    model.load_state_dict(matched.state)
    return model.eval()


# mmdetection's network, with its names


def abn(x: Tensor, state: State, name: str) -> Tensor:
    weight, bias, mean, var = (
        state[f"{name}.{t}"][:, None, None] for t in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / (var + 1e-5).sqrt() * (weight.abs() + 1e-5) + bias


def conv(x: Tensor, state: State, name: str, stride: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    return F.conv2d(x, weight, state.get(f"{name}.bias"), stride, weight.shape[-1] // 2)


def conv_module(x: Tensor, state: State, name: str) -> Tensor:
    return abn(conv(x, state, f"{name}.conv"), state, f"{name}.bn")


def nl_gc_block(x: Tensor, state: State, name: str) -> Tensor:
    """Follow the authors' detection code, nl_gc_block.py, with whiten_type channel, temp 0.05 and with_gc.

    z = x + gamma s((q - mu_q).(k - mu_k) / sqrt(D) / 0.05) v + s(m) v: only the pairwise output is gated
    """
    query, key, value = (conv(x, state, f"{name}.conv_{part}").flatten(2) for part in ("query", "key", "value"))
    query, key = query - query.mean(2, keepdim=True), key - key.mean(2, keepdim=True)
    logits = query.mT @ key / math.sqrt(query.shape[1]) / 0.05
    pairwise = (logits.softmax(2) @ value.mT).mT.reshape(x.shape)
    mask = conv(x, state, f"{name}.conv_mask").flatten(2).softmax(2)
    return x + state[f"{name}.gamma"] * pairwise + (value @ mask.mT)[..., None]


def nonlocal_block(x: Tensor, state: State, name: str) -> Tensor:
    """Follow mmdetection's NonLocal2D in mode embedded_gaussian: z = x + W_o s(theta.phi / sqrt(D)) g."""
    theta, phi, g = (conv(x, state, f"{name}.{part}.conv").flatten(2) for part in ("theta", "phi", "g"))
    attended = (theta.mT @ phi / math.sqrt(theta.shape[1])).softmax(2) @ g.mT
    return x + conv(attended.mT.reshape(*g.shape[:2], *x.shape[2:]), state, f"{name}.conv_out.conv")


def context_block(x: Tensor, state: State, name: str) -> Tensor:
    """Follow mmdetection's simplified non-local block without a bottleneck: z = x + s(m) v."""
    value = conv(x, state, f"{name}.conv_value").flatten(2)
    return x + (value @ conv(x, state, f"{name}.conv_mask").flatten(2).softmax(2).mT)[..., None]


BLOCKS = {"nl_gc_block": nl_gc_block, "nonlocal_block": nonlocal_block, "context_block": context_block}


def residual(x: Tensor, state: State, name: str, stride: int) -> Tensor:
    out = abn(conv(x, state, f"{name}.conv1"), state, f"{name}.bn1").relu()
    out = abn(conv(out, state, f"{name}.conv2", stride), state, f"{name}.bn2").relu()
    out = abn(conv(out, state, f"{name}.conv3"), state, f"{name}.bn3")
    if f"{name}.downsample.0.weight" in state:
        x = abn(conv(x, state, f"{name}.downsample.0", stride), state, f"{name}.downsample.1")
    out = out + x
    for block, forward in BLOCKS.items():
        if any(key.startswith(f"{name}.{block}.") for key in state):
            out = forward(out, state, f"{name}.{block}")
    return out.relu()


def pyramid(image: Tensor, state: State) -> list[Tensor]:
    x = abn(conv(image, state, "backbone.conv1", 2), state, "backbone.bn1").relu()
    x = F.max_pool2d(x, 3, 2, 1)
    maps = []
    for stage, count in enumerate((3, 4, 6, 3), start=1):
        for number in range(count):
            x = residual(x, state, f"backbone.layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1)
        maps.append(x)
    laterals = [conv_module(x, state, f"neck.lateral_convs.{level}") for level, x in enumerate(maps)]
    for level in (3, 2, 1):
        laterals[level - 1] = laterals[level - 1] + F.interpolate(laterals[level], scale_factor=2, mode="nearest")
    outputs = [conv_module(x, state, f"neck.fpn_convs.{level}") for level, x in enumerate(laterals)]
    return [*outputs, F.max_pool2d(outputs[-1], 1, 2)]


def rpn(maps: list[Tensor], state: State) -> tuple[list[Tensor], list[Tensor]]:
    hidden = [conv(x, state, "rpn_head.rpn_conv").relu() for x in maps]
    return [conv(x, state, "rpn_head.rpn_cls") for x in hidden], [conv(x, state, "rpn_head.rpn_reg") for x in hidden]


def anchors(size: torch.Size, stride: int) -> Tensor:
    """Return anchors around pixel (stride - 1) / 2 of each cell, ending with their last pixels."""
    centre, high = (stride - 1) / 2, torch.tensor([0.5, 1.0, 2.0]).sqrt()
    width, height = 8 * stride / high, 8 * stride * high
    corners = [
        centre - (width - 1) / 2,
        centre - (height - 1) / 2,
        centre + (width - 1) / 2,
        centre + (height - 1) / 2,
    ]
    y, x = torch.meshgrid(*(torch.arange(n) * stride for n in size), indexing="ij")
    shifts = torch.stack([x, y, x, y], 2).reshape(-1, 1, 4)
    return (shifts + torch.stack(corners, 1).round()).reshape(-1, 4)


def decode(boxes: Tensor, deltas: Tensor) -> Tensor:
    """Return boxes that end with their last pixels; the centre of a pixel has its index as coordinate."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2 + sides * deltas[:, :2]
    sides = sides * deltas[:, 2:].clamp(-math.log(1000 / 16), math.log(1000 / 16)).exp()
    return torch.cat([centres - sides / 2 + 0.5, centres + sides / 2 - 0.5], 1)


def proposals(offsets: list[Tensor]) -> Tensor:
    per_level = [
        decode(anchors(x.shape[-2:], stride), x[0].permute(1, 2, 0).reshape(-1, 4))
        for x, stride in zip(offsets, STRIDES, strict=True)
    ]
    return torch.cat(per_level)


def roi_align(x: Tensor, box: Tensor, stride: int, cells: int) -> Tensor:
    """Pool (C, H, W) to (C, cells, cells): the mean of 2 x 2 samples per cell of a box, zero outside the map."""
    low, high = box[:2] / stride, (box[2:] + 1) / stride
    grid = (torch.arange(2 * cells) + 0.5) / (2 * cells)
    for axis, shape in ((1, (-1, 1)), (0, (1, -1))):  # rows, columns
        points, count = low[axis] + grid * (high[axis] - low[axis]), x.shape[2 - axis]
        inside = ((points >= -1) & (points <= count)).view(shape)
        points = points.clamp(0, count - 1)
        first = points.long()
        part = (points - first).view(shape)
        last = (first + 1).clamp(max=count - 1)
        x = (x.index_select(2 - axis, first) * (1 - part) + x.index_select(2 - axis, last) * part) * inside
    return F.avg_pool2d(x[None], 2)[0]


def roi_features(maps: list[Tensor], boxes: Tensor, cells: int) -> Tensor:
    side = ((boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)).sqrt()
    levels = (side / 56 + 1e-6).log2().floor().clamp(0, 3).long()
    return torch.stack(
        [roi_align(maps[level][0], box, STRIDES[level], cells) for level, box in zip(levels, boxes, strict=True)]
    )


def box_head(x: Tensor, state: State) -> tuple[Tensor, Tensor]:
    for number in range(4):
        x = conv_module(x, state, f"bbox_head.shared_convs.{number}").relu()

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state[f"bbox_head.{name}.weight"], state[f"bbox_head.{name}.bias"])

    x = linear(x.flatten(1), "shared_fcs.0").relu()
    return linear(x, "fc_cls"), linear(x, "fc_reg")


def mask_head(x: Tensor, state: State) -> Tensor:
    for number in range(4):
        x = conv_module(x, state, f"mask_head.convs.{number}").relu()
    x = F.conv_transpose2d(x, state["mask_head.upsample.weight"], state["mask_head.upsample.bias"], 2).relu()
    return conv(x, state, "mask_head.conv_logits")


def assert_equal(found: Tensor, expected: Tensor) -> None:
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def as_edges(boxes: Tensor) -> Tensor:
    """Convert to boxes that end with their edges, as in dnlnet."""
    return boxes + torch.tensor([0.0, 0.0, 1.0, 1.0])


@torch.no_grad()
def test_the_whole_detector_equals_mmdetections() -> None:
    torch.manual_seed(0)
    state = random_state("layer3.4.nl_gc_block")
    model = built(converted(state, config=CONFIG))
    image = torch.randn(1, 3, *SIZE)

    maps = pyramid(image, state)
    features = model.backbone(image)
    assert list(features) == ["0", "1", "2", "3", "pool"]
    for found, expected in zip(features.values(), maps, strict=True):
        assert_equal(found, expected)

    # Equal proposals: half a cell apart, only the rounding of anchors to pixels differs.
    scores, offsets = rpn(maps, state)
    our_scores, our_offsets = model.rpn.head(list(features.values()))
    for found, expected in zip(our_scores, scores, strict=True):
        assert_equal(found, expected)
    our_anchors = model.rpn.anchor_generator(ImageList(image, [SIZE]), list(features.values()))
    flat = torch.cat([x[0].permute(1, 2, 0).reshape(-1, 4) for x in our_offsets])
    boxes = proposals(offsets)
    torch.testing.assert_close(model.rpn.box_coder.decode(flat, our_anchors)[:, 0], as_edges(boxes), rtol=0, atol=0.1)

    # Equal features of a box on its level, and equal classes, boxes and masks from them.
    boxes = torch.tensor([[3.0, 5, 30, 40], [-3, 4, 127, 63], [-20, -20, 150, 120], [-60, -60, 200, 180]])
    boxes = torch.cat([boxes, torch.tensor([[-200.0, -150, 300, 300]])])  # one or two per level
    for cells, pool in ((7, model.roi_heads.box_roi_pool), (14, model.roi_heads.mask_roi_pool)):
        assert_equal(pool(features, [as_edges(boxes)], [SIZE]), roi_features(maps, boxes, cells))
    pooled = torch.randn(3, 256, 7, 7)
    logits, deltas = box_head(pooled, state)
    our_logits, our_deltas = model.roi_heads.box_predictor(model.roi_heads.box_head(pooled))
    assert_equal(our_logits, logits)
    assert_equal(our_deltas, deltas)
    our_boxes = model.roi_heads.box_coder.decode(our_deltas, [as_edges(boxes[:3])])
    stds = torch.tensor([0.1, 0.1, 0.2, 0.2])
    expected = as_edges(decode(boxes[:3], deltas[:, 4 * 17 : 4 * 18] * stds))
    torch.testing.assert_close(our_boxes[:, 17], expected, rtol=1e-3, atol=1e-2)
    pooled = torch.randn(2, 256, 14, 14)
    assert_equal(model.roi_heads.mask_predictor(model.roi_heads.mask_head(pooled)), mask_head(pooled, state))


@torch.no_grad()
@pytest.mark.parametrize("kind", BLOCKS)
def test_each_block_equals_mmdetections(kind: str) -> None:
    name = f"layer3.4.{kind}"
    state = meta_state(name) | random_state(name, only=f"backbone.{name}.")
    found = converted(state)
    model, inside = found.recipe.model, "backbone.body.body.layer3.4.act3.non_local."
    block = NonLocalBlock(1024, model.variant, preset=model.preset, **model.block)
    block.load_state_dict({n.removeprefix(inside): t for n, t in found.state.items() if n.startswith(inside)})
    x = torch.randn(2, 1024, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = {n: t.double() for n, t in state.items() if n.startswith(f"backbone.{name}.")}
    expected = BLOCKS[kind](x, exact, f"backbone.{name}")
    torch.testing.assert_close(block.double().eval()(x), expected, rtol=1e-9, atol=1e-9)


C4 = ("layer3.4",)
C5 = ("layer4.0", "layer4.1", "layer4.2")
C4_ALL = tuple(f"layer3.{number}" for number in range(6))


@pytest.mark.parametrize(
    ("places", "kind", "recipe"),
    [
        ((), "nl_gc_block", "coco-r50-baseline"),
        (C4, "nl_gc_block", "coco-r50-dnl-c4"),
        (C5, "nl_gc_block", "coco-r50-dnl-c5"),
        (C4_ALL + C5, "nl_gc_block", "coco-r50-dnl-c4c5"),
        (C4, "nonlocal_block", "coco-r50-nl-c4"),
        (C4, "context_block", "coco-r50-gc-c4"),
        (C5, "context_block", "coco-r50-gc-c5"),
    ],
)
def test_the_recipe_follows_from_the_names_and_every_tensor_is_used(
    places: tuple[str, ...], kind: str, recipe: str
) -> None:
    found = converted(meta_state(*(f"{place}.{kind}" for place in places)))
    assert found.recipe == find_recipe(recipe)
    assert len(found.classes) == 80
    assert not match_network(found).unused


def test_a_block_without_a_mask_is_pairwise() -> None:
    state = {n: t for n, t in meta_state("layer3.4.nl_gc_block").items() if "conv_mask" not in n}
    assert converted(state).recipe.name == "coco-r50-nl_pairwise-c4"


def test_a_network_outside_the_paper_does_not_claim_its_scores() -> None:
    state = {n: t for p in C5 for n, t in meta_state(f"{p}.nl_gc_block").items() if "conv_mask" not in n}
    recipe = converted(state).recipe
    assert (recipe.name, recipe.paper) == ("mmdet-coco-resnet50-nl_pairwise-c5_all", None)
    assert (recipe.model.variant, recipe.model.placement) == ("nl_pairwise", "c5_all")
    assert parse_recipe(recipe.model_dump_json()) == recipe


def test_the_configuration_supplies_what_tensors_do_not() -> None:
    state = meta_state("layer3.4.nl_gc_block")
    assumed, said = converted(state), converted(state, config=CONFIG)
    assert any("temp=0.05, downsample=False" in note for note in assumed.notes)
    assert not any("temp=" in note for note in said.notes)
    assert said.recipe == assumed.recipe
    other = converted(state, config=CONFIG.replace("temp=0.05", "temp=0.1").replace("downsample=False, ", ""))
    assert other.recipe.model.block == {"temperature": 0.1, "pool": 2}
    caffe = CONFIG.replace("'pytorch'", "'caffe'").replace("to_rgb=True", "to_rgb=False")
    caffe = caffe.replace("123.675, 116.28, 103.53", "102.9801, 115.9465, 122.7717")
    caffe = caffe.replace("58.395, 57.12, 57.375", "1.0, 1.0, 1.0")
    model = converted(state, config=caffe).recipe.model
    assert (model.stride_in_1x1, model.caffe_pixels, model.block) == (True, True, {})


NORM = "backbone.body.body.bn1.weight"


def with_norms(lowest: float, **more: Tensor) -> State:
    """Return norm weights from the lowest value to 1."""
    state = {n: torch.linspace(lowest, 1, *t.shape) if t.dim() == 1 else t for n, t in meta_state().items()}
    return {**state, **more}


def test_norms_follow_the_configuration() -> None:
    state = with_norms(-1.0)
    for kind in ("ABN", "SyncABN"):
        found = converted(state, config=CONFIG.replace("SyncABN", kind))
        torch.testing.assert_close(found.state[NORM], state["backbone.bn1.weight"].abs() + 1e-5)
        assert any("InPlaceABN" in note for note in found.notes)
    plain = converted(state, config=CONFIG.replace("SyncABN", "SyncBN"))
    assert torch.equal(plain.state[NORM], state["backbone.bn1.weight"])
    with pytest.raises(ValueError, match=r"its norm_cfg\.activation is 'leaky_relu'"):
        converted(state, config=CONFIG.replace("requires_grad=True", "activation='leaky_relu'"))
    two = CONFIG + "neck = dict(norm_cfg=dict(type='BN'))"
    with pytest.raises(ValueError, match=r"norms are of several kinds \(BN, SyncABN\)"):
        converted(state, config=two)


def test_norms_without_a_configuration_are_distinguished_or_asked_for(tmp_path: Path) -> None:
    """InPlaceABN counts batches since 1.1, like PyTorch; files without counts come from earlier versions."""
    old = converted(with_norms(-1.0))
    assert any("InPlaceABN" in note for note in old.notes)
    counts = {"backbone.bn1.num_batches_tracked": torch.tensor(7)}
    same = converted(with_norms(0.1, **counts))  # equal either way, up to 1e-5
    assert any("no weight is negative" in note for note in same.notes)
    assert torch.equal(same.state[NORM], torch.linspace(0.1, 1, 64))
    with pytest.raises(ValueError, match=r"\d+ weights are negative.*--config FILE") as error:
        converted(with_norms(-1.0, **counts))
    advised = re.findall(r"norm_cfg = dict\(type='\w+'\)", str(error.value))
    weights = with_norms(-1.0)["backbone.bn1.weight"]
    for line, expected in zip(advised, (weights.abs() + 1e-5, weights), strict=True):
        torch.testing.assert_close(converted(with_norms(-1.0, **counts), config=line).state[NORM], expected)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("backbone=dict(strides=(1, 2, 2, 1))", r"its backbone\.strides is \(1, 2, 2, 1\); supported:"),
        ("backbone=dict(dilations=(1, 1, 1, 2))", r"its backbone\.dilations is"),
        ("backbone=dict(style='other')", r"its backbone\.style is 'other'"),
        ("rpn_head=dict(anchor_scales=[4])", r"its rpn_head\.anchor_scales is \(4,\); supported: \(8,\)"),
        ("bbox_head=dict(target_stds=[1., 1., 1., 1.])", r"its bbox_head\.target_stds is"),
        ("bbox_roi_extractor=dict(roi_layer=dict(type='RoIPool'))", r"its bbox_roi_extractor\.roi_layer is"),
    ],
)
def test_a_configuration_of_another_network_is_refused(more: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        converted(meta_state(), config=f"model = dict({more})")


def test_settings_are_converted_or_mentioned() -> None:
    text = "test_cfg = dict(rcnn=dict(score_thr=0.001, max_per_img=100))\ntest = dict(img_scale=(1000, 600))"
    found = converted(meta_state(), config=text)
    assert "its test_cfg.rcnn.score_thr is 0.001; here it is 0.05" in found.notes
    assert isinstance(found.recipe, DetectionRecipe)
    assert (found.recipe.data.short_side, found.recipe.data.long_side) == (600, 1000)
    with pytest.raises(ValueError, match=r"img_scale is \({},\); expected two whole numbers"):
        converted(meta_state(), config="test = dict(img_scale=[dict()])")


def test_classes_come_from_the_file_or_coco() -> None:
    state = meta_state()
    classes = converted(state).classes
    assert (len(classes), classes.names[0], classes.numbers[0]) == (80, "person", 1)
    assert (classes.names[-1], classes.numbers[-1], classes.numbers[11]) == ("toothbrush", 90, 13)
    assert converted(state, CLASSES=tuple(classes.names)).classes == classes
    assert any("COCO" in note for note in converted(state).notes)
    few = {name: torch.empty(shape, device="meta") for name, shape in shapes(classes=3)}
    assert converted(few, CLASSES=("cat", "dog")).classes.names == ("cat", "dog")
    assert converted(few).classes.names == converted(few, CLASSES=3).classes.names == ("class 1", "class 2")
    with pytest.raises(ValueError, match="names 3 classes but predicts 2"):
        converted(few, CLASSES=("cat", "dog", "cow"))


def test_unsupported_networks_are_refused() -> None:
    state = meta_state("layer3.4.context_block")
    bottleneck = {name.replace("conv_value", "channel_add_conv.0"): tensor for name, tensor in state.items()}
    with pytest.raises(ValueError, match=r"unsupported blocks: context_block of channel_add_conv\.0, conv_mask"):
        converted(bottleneck)
    with pytest.raises(ValueError, match=r"blocks in layer2\.0, layer3\.4; known placements: c4_one"):
        converted({**state, **{name.replace("layer3.4.context", "layer2.0.context"): t for name, t in state.items()}})
    with pytest.raises(ValueError, match=r"\(2, 4, 6, 3\) bottlenecks in its stages"):
        converted({name: tensor for name, tensor in state.items() if "layer1.2" not in name})
    with pytest.raises(ValueError, match="its RPN has 3 offsets at a position; expected four for each of 3 anchors"):
        converted({**state, "rpn_head.rpn_reg.bias": torch.ones(3)})
    with pytest.raises(ValueError, match=r"rpn_head\.rpn_reg\.bias is missing"):
        converted({name: tensor for name, tensor in state.items() if "rpn_reg" not in name})
    with pytest.raises(ValueError, match=r"whiten_type=\('bn',\); only"):
        converted(meta_state("layer3.4.nl_gc_block"), config=CONFIG.replace("'channel'", "'bn'"))
