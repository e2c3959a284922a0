"""Slow-only networks of PySlowFast as video classifiers of this package.

The network is the same: a ResNet whose blocks come after the last activation of residual blocks. Checkpoints carry
their configuration as YAML, under `cfg`; what it says and tensors do not is read from there.
"""

import pickletools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from dnlnet.backbones.resnet3d import VIDEO_BACKBONES, SlowOnly
from dnlnet.models.video import VideoClassifier

PRESET = "slowfast"
_STAGES = {"s2": "layer1", "s3": "layer2", "s4": "layer3", "s5": "layer4"}
_BRANCHES = {
    "branch1": "downsample.0",
    "branch1_bn": "downsample.1",
    "branch2.a": "conv1",
    "branch2.a_bn": "bn1",
    "branch2.b": "conv2",
    "branch2.b_bn": "bn2",
    "branch2.c": "conv3",
    "branch2.c_bn": "bn3",
}
_BLOCK = {"conv_theta": "query", "conv_phi": "key", "conv_g": "value", "conv_out": "projection", "bn": "norm"}
_OUTSIDE = {
    "s1.pathway0_stem.conv": "backbone.conv1",
    "s1.pathway0_stem.bn": "backbone.bn1",
    "head.projection": "classifier",
}
_RESIDUAL = re.compile(r"(s[2-5])\.pathway0_res(\d+)\.(.+)")
_NON_LOCAL = re.compile(r"(s[2-5])\.pathway0_nonlocal(\d+)\.(.+)")
_CAFFE2_NAME = re.compile(r"res\d_\d+_branch2[abc]_w")
_CAFFE2 = (
    "is a Caffe2 model of PySlowFast's model zoo, a pickle of arrays under 'blobs', which cannot be read without "
    "running what it says; load it in PySlowFast with TEST.CHECKPOINT_TYPE caffe2 and save the network's state dict"
)
_TEST_NOTE = (
    "on crops larger than those it was trained on, PySlowFast averages the probabilities of overlapping 7 x 7 "
    "windows; here the features of the whole crop are averaged, which is the same at 224"
)


@dataclass(frozen=True)
class SlowOnlyDescription:
    """What the tensors are weights of, as arguments of `SlowOnly` and `VideoClassifier`.

    Args:
        backbone: a row of `dnlnet.backbones.resnet3d.VIDEO_BACKBONES`.
        classes: number of classes.
        variant: None without blocks.
        placement: stage -> residual blocks that a block comes after.
        preset, block: of the blocks.
        stride_in_1x1: as for `SlowOnly`.
        notes: what was assumed, or is otherwise worth knowing.
        unused: names of tensors of the file that have no place.
    """

    backbone: str
    classes: int
    variant: str | None
    placement: Mapping[str, tuple[int, ...]]
    preset: str = PRESET
    block: Mapping[str, Any] = field(default_factory=dict)
    stride_in_1x1: bool = False
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def build(self) -> VideoClassifier:
        """The network, without the weights."""
        return VideoClassifier(
            SlowOnly(self.backbone, stride_in_1x1=self.stride_in_1x1),
            self.classes,
            self.variant,
            self.placement or None,
            preset=self.preset,
            **self.block,
        )


def matches(state: Mapping[str, Tensor]) -> bool:
    """Whether these are names of PySlowFast's networks, or of the Caffe2 models that it reads too.

    >>> matches({"s1.pathway0_stem.conv.weight": torch.empty(0)})
    True
    """
    return "s1.pathway0_stem.conv.weight" in state or any(_CAFFE2_NAME.fullmatch(name) for name in state)


def why_caffe2(path: Path) -> str | None:
    """Why a file cannot be read, if it is one of Caffe2's; nothing of it is run to find out."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"\x80":  # the first byte of every pickle since the second protocol
                return None
            file.seek(0)
            first = next((op[1] for op in pickletools.genops(file) if isinstance(op[1], str)), None)
    except (ValueError, UnicodeDecodeError):
        return None
    return f"{path}: {_CAFFE2}" if first == "blobs" else None


def convert_state(
    state: Mapping[str, Tensor], cfg: str | None = None
) -> tuple[dict[str, Tensor], SlowOnlyDescription]:
    """The tensors by our names, and what they are weights of.

    Args:
        state: of the checkpoint's `model_state`.
        cfg: its `cfg`, the YAML of its configuration; without it, some settings are assumed, and noted.

    Raises ValueError for networks that this package has not: two pathways, other kernels in time, attention that is
    a dot product.
    """
    if any(_CAFFE2_NAME.fullmatch(name) for name in state):
        raise ValueError(f"this {_CAFFE2}")
    if strange := [name for name in state if re.search(r"\.pathway[1-9]_", name)]:
        raise ValueError(f"has a second pathway ({strange[0]}); only slow-only networks are converted")
    settings = _Settings.read(cfg)
    placement = _placement(state)
    renamed = {ours: tensor for name, tensor in state.items() if (ours := _our_name(name)) is not None}
    if settings.reversed_channels:
        renamed["backbone.conv1.weight"] = renamed["backbone.conv1.weight"].flip(1)
    pools = {settings.pool(stage) for stage in placement}
    if len(pools) > 1:
        raise ValueError(f"its blocks pool keys by {', '.join(map(str, sorted(pools)))}; expected one number")
    pool = pools.pop() if pools else 2
    description = SlowOnlyDescription(
        backbone=_backbone(state),
        classes=len(state["head.projection.weight"]),
        variant="nl" if placement else None,
        placement=placement,
        block={} if pool == 2 else {"pool": pool},
        stride_in_1x1=settings.stride_in_1x1,
        notes=((settings.note,) if settings.note and placement else ()) + (_TEST_NOTE,),
        unused=tuple(name for name in state if _our_name(name) is None),
    )
    wanted = _shapes(description)
    for name, shape in wanted.items():
        if ".non_local." in name and name in renamed and len(shape) == 2:
            renamed[name] = renamed[name].flatten(1)  # 1 x 1 x 1 convolutions are linear maps
    _check(renamed, wanted, description.backbone)
    return renamed, description


@dataclass(frozen=True)
class _Settings:
    """What a configuration says about the network that its tensors do not show."""

    stride_in_1x1: bool = False
    reversed_channels: bool = False
    pools: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of the blocks: frames, rows, columns
    note: str = ""

    @classmethod
    def read(cls, cfg: str | None) -> "_Settings":
        if cfg is None:
            return cls(
                note="no configuration in the file: its blocks are taken to have NONLOCAL.INSTANTIATION softmax, and "
                "keys pooled by 2; one trained with dot_product, as PySlowFast does unless told, is another network"
            )
        content = yaml.safe_load(cfg)
        part = {name: value for name, value in content.items() if isinstance(value, dict)}
        blocks = part.get("NONLOCAL", {})
        if any(any(stage) for stage in blocks.get("LOCATION", ())) and _flat(blocks.get("LOCATION")):
            kind = blocks.get("INSTANTIATION", "dot_product")
            if kind != "softmax":
                raise ValueError(
                    f"its blocks have NONLOCAL.INSTANTIATION {kind}, attention without a softmax, which the blocks "
                    "of this package do not have; only softmax is converted"
                )
            if any(group > 1 for group in _flat(blocks.get("GROUP", ()))):
                raise ValueError("its blocks look at groups of frames (NONLOCAL.GROUP above 1); only 1 is converted")
        pools = dict(zip(_STAGES.values(), blocks.get("POOL", ()), strict=False))
        return cls(
            bool(part.get("RESNET", {}).get("STRIDE_1X1", False)),
            bool(part.get("DATA", {}).get("REVERSE_INPUT_CHANNEL", False)),
            {stage: tuple(pool[0]) for stage, pool in pools.items() if pool},
        )

    def pool(self, stage: str) -> int:
        """The factor in space of the blocks of a stage."""
        frames, rows, columns = self.pools.get(stage, (1, 2, 2))
        if frames != 1 or rows != columns:
            raise ValueError(
                f"its blocks pool keys by {frames} x {rows} x {columns}; only equal factors in space are converted"
            )
        return rows


def _flat(value: Any) -> list[Any]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list | tuple) else [value]


def _our_name(name: str) -> str | None:
    layer, _, tensor = name.rpartition(".")
    if layer in _OUTSIDE:
        return f"{_OUTSIDE[layer]}.{tensor}"
    for pattern, layers, inside in ((_RESIDUAL, _BRANCHES, ""), (_NON_LOCAL, _BLOCK, "non_local.")):
        parts = pattern.fullmatch(layer)
        if parts and parts[3] in layers:
            return f"backbone.{_STAGES[parts[1]]}.{parts[2]}.{inside}{layers[parts[3]]}.{tensor}"
    return None


def _placement(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for name in state:
        if parts := _NON_LOCAL.fullmatch(name):
            found.setdefault(_STAGES[parts[1]], set()).add(int(parts[2]))
    return {stage: tuple(sorted(numbers)) for stage, numbers in sorted(found.items())}


def _backbone(state: Mapping[str, Tensor]) -> str:
    places = {(parts[1], parts[2]) for name in state if (parts := _RESIDUAL.fullmatch(name))}
    layers = tuple(sum(stage == s for s, _ in places) for stage in _STAGES)
    width = len(state["s1.pathway0_stem.conv.weight"])
    for name, row in VIDEO_BACKBONES.items():
        if (row.layers, row.width) == (layers, width):
            return name
    known = ", ".join(f"{row.layers} of {row.width}" for row in VIDEO_BACKBONES.values())
    raise ValueError(f"its stages have {layers} residual blocks and its stem {width} channels; known: {known}")


def _shapes(description: SlowOnlyDescription) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in description.build().state_dict().items()}


def _check(state: Mapping[str, Tensor], wanted: Mapping[str, torch.Size], backbone: str) -> None:
    """Fail where tensors are missing or have other shapes: C2D and I3D have other kernels in time."""
    if missing := [name for name in wanted if name not in state]:
        raise ValueError(f"lacks {len(missing)} tensors of {backbone} ({', '.join(missing[:3])})")
    for name, shape in wanted.items():
        if state[name].shape != shape:
            raise ValueError(
                f"its {name} is {tuple(state[name].shape)} and not {tuple(shape)} as in {backbone}; only slow-only "
                "networks are converted, whose kernels see 1, 1, 1, 3, 3 frames in s1 to s5"
            )
