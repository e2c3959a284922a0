"""Networks of other code bases: names and shapes of their tensors, and their forward passes in plain PyTorch.

`Size` scales the shapes, so that small networks can represent large ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.backbones import BACKBONES
from dnlnet.backbones.rows import BackboneRow
from dnlnet.conversion import resnets

State = dict[str, Tensor]
Shapes = Iterator[tuple[str, tuple[int, ...]]]
BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Size:
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    head: int = 512
    auxiliary: int = 256
    classes: int = 19


SMALL = Size((1, 1, 2, 3), (8, 16, 20, 24), head=12, auxiliary=10, classes=5)


def use_small_backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register ResNets of the size `SMALL`."""
    options = {"layers": SMALL.blocks, "channels": SMALL.widths}
    monkeypatch.setitem(resnets.DEPTHS, SMALL.blocks, "small_resnet50")  # type: ignore[arg-type]
    for name in ("resnet50c", "resnet50s"):
        row = BackboneRow(name, (8, 16, 32), r"layer\d\.\d+", options, bottlenecks=True)
        monkeypatch.setitem(BACKBONES, f"small_{name}", row)  # type: ignore[arg-type]


def filled(shapes: Shapes, device: str = "cpu", seed: int = 0) -> State:
    """Fill tensors with random numbers that keep features near 1; variances are positive."""
    generator = torch.Generator().manual_seed(seed)
    if device == "meta":
        return {name: torch.empty(shape, device="meta") for name, shape in shapes}
    state: State = {}
    for name, shape in shapes:
        if len(shape) > 1:
            state[name] = torch.randn(shape, generator=generator) * (2 / torch.Size(shape[1:]).numel()) ** 0.5
        elif name.endswith(("running_var", "weight")):
            state[name] = 0.5 + torch.rand(shape, generator=generator)
        else:
            state[name] = 0.3 * torch.randn(shape, generator=generator)
    return state


def norm_shapes(name: str, width: int) -> Shapes:
    for kind in BATCH_NORM:
        yield f"{name}.{kind}", (width,)
    yield f"{name}.num_batches_tracked", ()


def stage_shapes(size: Size, width: int) -> Shapes:
    """Return the bottlenecks of a ResNet after a stem of this width."""
    for stage, (count, inner) in enumerate(zip(size.blocks, size.widths, strict=True), 1):
        for index in range(count):
            block = f"backbone.layer{stage}.{index}"
            convolutions = ((inner, width, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1))
            for number, shape in enumerate(convolutions, 1):
                yield f"{block}.conv{number}.weight", shape
                yield from norm_shapes(f"{block}.bn{number}", shape[0])
            if index == 0:
                yield f"{block}.downsample.0.weight", (4 * inner, width, 1, 1)
                yield from norm_shapes(f"{block}.downsample.1", 4 * inner)
            width = 4 * inner


def mmseg_shapes(size: Size, kind: str | None, concat: bool = True) -> Shapes:
    """Return the shapes; `kind` is dnl_block, nl_block, or None for the plain head; `concat` is its concat_input."""
    for index, (width, before) in zip((0, 3, 6), ((32, 3), (32, 32), (64, 32)), strict=True):
        yield f"backbone.stem.{index}.weight", (width, before, 3, 3)
        yield from norm_shapes(f"backbone.stem.{index + 1}", width)
    yield from stage_shapes(size, 64)
    deep, middle, width = 4 * size.widths[3], 4 * size.widths[2], size.head
    modules = {
        "decode_head.convs.0": (deep, width),
        "decode_head.convs.1": (width, width),
        "decode_head.conv_cat": (deep + width, width),
        "auxiliary_head.convs.0": (middle, size.auxiliary),
    }
    if not concat:
        del modules["decode_head.conv_cat"]
    for name, (before, after) in modules.items():
        yield f"{name}.conv.weight", (after, before, 3, 3)
        yield from norm_shapes(f"{name}.bn", after)
    for head, before in (("decode_head", width), ("auxiliary_head", size.auxiliary)):
        yield f"{head}.conv_seg.weight", (size.classes, before, 1, 1)
        yield f"{head}.conv_seg.bias", (size.classes,)
    if kind is None:
        return
    block = f"decode_head.{kind}"
    for name in ("g", "theta", "phi"):
        yield f"{block}.{name}.conv.weight", (width // 2, width, 1, 1)
        yield f"{block}.{name}.conv.bias", (width // 2,)
    yield f"{block}.conv_out.conv.weight", (width, width // 2, 1, 1)
    yield from norm_shapes(f"{block}.conv_out.bn", width)
    if kind == "dnl_block":
        yield f"{block}.conv_mask.weight", (1, width, 1, 1)
        yield f"{block}.conv_mask.bias", (1,)


def torchcv_shapes(
    size: Size,
    *,
    query: bool = True,
    mask: bool = True,
    module: str = "nlm",
    use_out: bool = False,
    out_bn: bool = False,
) -> Shapes:
    """Return the shapes of the authors' network with a deep stem; without query and mask it has no block."""
    for index, (width, before) in enumerate(((64, 3), (64, 64), (128, 64)), 1):
        yield f"backbone.prefix.conv{index}.weight", (width, before, 3, 3)
        yield from norm_shapes(f"backbone.prefix.bn{index}", width)
    yield from stage_shapes(size, 128)
    deep, middle, width = 4 * size.widths[3], 4 * size.widths[2], size.head
    for name, before in (("conva", deep), ("convb", width), ("bottleneck", deep + width)):
        yield f"{module}.{name}.0.weight", (width, before, 3, 3)
        yield from norm_shapes(f"{module}.{name}.1.0", width)
    yield f"{module}.bottleneck.3.weight", (size.classes, width, 1, 1)
    yield f"{module}.bottleneck.3.bias", (size.classes,)
    yield "dsn.0.conv.weight", (size.auxiliary, middle, 3, 3)
    yield from norm_shapes("dsn.0.bn_relu.0", size.auxiliary)
    yield "dsn.2.weight", (size.classes, size.auxiliary, 1, 1)
    yield "dsn.2.bias", (size.classes,)
    for name in ("conv_query", "conv_key") * query:
        yield f"{module}.ctb.{name}.weight", (width // 2, width, 1, 1)
        yield f"{module}.ctb.{name}.bias", (width // 2,)
    if mask:
        yield f"{module}.ctb.conv_mask.weight", (1, width, 1, 1)
        yield f"{module}.ctb.conv_mask.bias", (1,)
    if query or mask:
        inner = width // 2 if use_out else width
        yield f"{module}.ctb.conv_value.weight", (inner, width, 1, 1)
        yield f"{module}.ctb.gamma", (1,)
    if use_out:
        yield f"{module}.ctb.conv_value.bias", (width // 2,)
        yield f"{module}.ctb.conv_out.weight", (width, width // 2, 1, 1)
    if out_bn:
        yield from norm_shapes(f"{module}.ctb.out_bn", width)


# Functions of these networks in evaluation mode. B batch, N positions, C channels.


def convolved(state: Mapping[str, Tensor], name: str, x: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    padding = dilation * (weight.shape[-1] // 2)
    return F.conv2d(x, weight, state.get(f"{name}.bias"), stride, padding, dilation)


def normed(state: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    weight, bias, mean, variance = (state[f"{name}.{kind}"].view(-1, 1, 1) for kind in BATCH_NORM)
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


Plan = list[list[tuple[int, int]]]  # stride and dilation of each bottleneck, by stage


def mmseg_plan(
    size: Size,
    strides: tuple[int, ...] = (1, 2, 1, 1),
    dilations: tuple[int, ...] = (1, 1, 2, 4),
    contract_dilation: bool = True,
    multi_grid: tuple[int, ...] | None = None,
) -> Plan:
    """Follow mmsegmentation's ResNet and ResLayer; the defaults match its r50-d8 configurations."""
    plan = []
    for stage, (count, stride, dilation) in enumerate(zip(size.blocks, strides, dilations, strict=True)):
        rates = [dilation] * count
        if contract_dilation and dilation > 1:
            rates[0] = dilation // 2
        if multi_grid is not None and stage == 3:  # "multi grid is applied to last layer only", in place of its rates
            rates = list(multi_grid[:count])
        plan.append([(stride if index == 0 else 1, rate) for index, rate in enumerate(rates)])
    return plan


def torchcv_plan(size: Size, dilate_scale: int = 8, multi_grid: tuple[int, ...] | None = (1, 1, 1)) -> Plan:
    """Follow torchcv's DilatedResnetBackbone: a convolution loses its stride and is dilated by half of it."""
    plan = [
        [(2 if stage and index == 0 else 1, 1) for index in range(count)] for stage, count in enumerate(size.blocks)
    ]

    def dilate(stage: int, index: int, rate: int) -> None:
        stride, _ = plan[stage][index]
        plan[stage][index] = (1, rate // 2 if stride == 2 else rate)

    if dilate_scale == 8:
        for index in range(size.blocks[2]):
            dilate(2, index, 2)
    if dilate_scale in (8, 16):
        for index in range(size.blocks[3]):
            dilate(3, index, 32 // dilate_scale * (1 if multi_grid is None else multi_grid[index]))
    return plan


def stages(state: Mapping[str, Tensor], plan: Plan, x: Tensor, caffe: bool = False) -> list[Tensor]:
    """Return the maps of the four stages; `caffe` strides the first convolution of each bottleneck."""
    maps = []
    for stage, blocks in enumerate(plan, 1):
        for index, (stride, dilation) in enumerate(blocks):
            block = f"backbone.layer{stage}.{index}"
            first, second = (stride, 1) if caffe else (1, stride)
            y = normed(state, f"{block}.bn1", convolved(state, f"{block}.conv1", x, first)).relu()
            y = normed(state, f"{block}.bn2", convolved(state, f"{block}.conv2", y, second, dilation)).relu()
            y = normed(state, f"{block}.bn3", convolved(state, f"{block}.conv3", y))
            if index == 0:
                x = normed(state, f"{block}.downsample.1", convolved(state, f"{block}.downsample.0", x, stride))
            x = (x + y).relu()
        maps.append(x)
    return maps


def tokens(x: Tensor) -> Tensor:
    return x.flatten(2).mT  # (B, N, C)


def mmseg_block(state: Mapping[str, Tensor], kind: str, x: Tensor, mode: str = "embedded_gaussian") -> Tensor:
    """Follow mmsegmentation 0.6.0 to 1.2.2: NonLocal2d.forward of mmcv, DisentangledNonLocal2d.forward.

    NL:  z = x + norm(W_o s(theta.phi / sqrt(D)) g)
    DNL: z = x + norm(W_o (s((theta - mean).(phi - mean) / sqrt(D) / 0.05) g + s(m) g))
    Mode dot_product replaces the softmax by theta.phi / N, without scale and temperature.
    """
    block = f"decode_head.{kind}"
    theta, phi, g = (tokens(convolved(state, f"{block}.{name}.conv", x)) for name in ("theta", "phi", "g"))
    if kind == "dnl_block":  # "subtract mean": of each channel, over positions
        theta, phi = (y - y.mean(1, keepdim=True) for y in (theta, phi))
    weight = theta @ phi.mT / theta.shape[2] ** 0.5  # use_scale, the default of both heads
    if kind == "dnl_block":
        weight = weight / 0.05  # DNLHead's default temperature
    y = weight.softmax(2) @ g
    if mode == "dot_product":
        y = theta @ phi.mT / phi.shape[1] @ g
    if kind == "dnl_block":
        mask = tokens(convolved(state, f"{block}.conv_mask", x)).mT.softmax(2)  # (B, 1, N)
        y = y + mask @ g  # `y + unary_x`: the sum comes before conv_out and its norm
    out = convolved(state, f"{block}.conv_out.conv", y.mT.reshape(len(x), -1, *x.shape[2:]))
    return x + normed(state, f"{block}.conv_out.bn", out)


def mmseg_logits(
    state: Mapping[str, Tensor],
    plan: Plan,
    kind: str | None,
    images: Tensor,
    align_corners: bool,
    *,
    caffe: bool = False,
    dilation: int = 1,
    mode: str = "embedded_gaussian",
) -> tuple[Tensor, Tensor]:
    """Return the class logits, and the auxiliary head's logits at its own size; `dilation` applies to the heads."""
    x = images
    for index, stride in ((0, 2), (3, 1), (6, 1)):
        convolution = convolved(state, f"backbone.stem.{index}", x, stride)
        x = normed(state, f"backbone.stem.{index + 1}", convolution).relu()
    *_, middle, deep = stages(state, plan, F.max_pool2d(x, 3, 2, 1), caffe)

    def module(name: str, x: Tensor, dilation: int = dilation) -> Tensor:
        return normed(state, f"{name}.bn", convolved(state, f"{name}.conv", x, 1, dilation)).relu()

    y = module("decode_head.convs.0", deep)
    if kind is not None:
        y = mmseg_block(state, kind, y, mode)
    y = module("decode_head.convs.1", y)
    if "decode_head.conv_cat.conv.weight" in state:  # concat_input
        y = module("decode_head.conv_cat", torch.cat([deep, y], 1), 1)
    y = convolved(state, "decode_head.conv_seg", y)
    auxiliary = convolved(state, "auxiliary_head.conv_seg", module("auxiliary_head.convs.0", middle))
    return F.interpolate(y, images.shape[2:], mode="bilinear", align_corners=align_corners), auxiliary


def torchcv_block(state: Mapping[str, Tensor], x: Tensor, settings: Mapping[str, Any], module: str = "nlm") -> Tensor:
    """Follow the authors' nonlocal_block.py (nonlocalbn, with temperature) and nonlocal_block_nowd.py (nonlocalnowd).

    z = x + gamma s(q.k / c) v [+ s(mu_q.k) v: with_unary] [+ s(m) v: with_gc], with q and k centred by whiten_type;
    use_out applies a convolution to everything added to x, and out_bn a norm after it.
    """
    block, whitening = f"{module}.ctb", settings.get("whiten_type", ())
    value = tokens(convolved(state, f"{block}.conv_value", x))
    out = torch.zeros_like(value)
    if f"{block}.conv_query.weight" in state:
        query, key = (tokens(convolved(state, f"{block}.{name}", x)) for name in ("conv_query", "conv_key"))
        by_channel = "channel" if "temp" in settings else "in_nostd"  # each class uses its own name
        over = {by_channel: (1,), "ln_nostd": (1, 2)}
        means = [y.mean(over[kind], keepdim=True) for kind in whitening if kind in over for y in (query, key)]
        if means:  # other names have no effect
            query, key = query - means[0], key - means[1]
        logits = query @ key.mT
        if "temp" in settings:  # sim_map / scale / temperature
            logits = logits / query.shape[2] ** 0.5 / settings["temp"]
        elif "nl" not in settings["nowd"]:  # "cancel temp and scale"
            logits = logits / query.shape[2] ** 0.5
        out = state[f"{block}.gamma"] * (logits.softmax(2) @ value)
        if settings.get("with_unary"):  # softmax of query_mean and key, neither scaled nor gated
            out = out + (means[0].expand(-1, -1, key.shape[2]) @ key.mT).softmax(2) @ value
    if f"{block}.conv_mask.weight" in state:
        out = out + tokens(convolved(state, f"{block}.conv_mask", x)).mT.softmax(2) @ value
    added = out.mT.reshape(len(x), -1, *x.shape[2:])
    if f"{block}.conv_out.weight" in state:
        added = convolved(state, f"{block}.conv_out", added)
    if f"{block}.out_bn.weight" in state:
        added = normed(state, f"{block}.out_bn", added)
    return x + added


def torchcv_logits(
    state: Mapping[str, Tensor], plan: Plan, pixels: Tensor, settings: Mapping[str, Any], module: str = "nlm"
) -> tuple[Tensor, Tensor]:
    """Return the logits of RGB pixels (B, 3, H, W) in 0..255; the auxiliary head's are not resized."""
    x = pixels.flip(1) - torch.tensor([102.9801, 115.9465, 122.7717], dtype=pixels.dtype).view(3, 1, 1)
    for index, stride in ((1, 2), (2, 1), (3, 1)):
        convolution = convolved(state, f"backbone.prefix.conv{index}", x, stride)
        x = normed(state, f"backbone.prefix.bn{index}", convolution).relu()
    *_, middle, deep = stages(state, plan, F.max_pool2d(x, 3, 2, 1, ceil_mode=True))

    def layer(name: str, x: Tensor) -> Tensor:
        return normed(state, f"{module}.{name}.1.0", convolved(state, f"{module}.{name}.0", x)).relu()

    y = layer("conva", deep)
    if f"{module}.ctb.conv_value.weight" in state:
        y = torchcv_block(state, y, settings, module)
    y = layer("bottleneck", torch.cat([deep, layer("convb", y)], 1))
    y = convolved(state, f"{module}.bottleneck.3", y)
    hidden = normed(state, "dsn.0.bn_relu.0", convolved(state, "dsn.0.conv", middle)).relu()
    return F.interpolate(y, pixels.shape[2:], mode="bilinear", align_corners=True), convolved(state, "dsn.2", hidden)
