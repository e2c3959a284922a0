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

import yaml

from dnlnet.backbones.resnet3d import VIDEO_BACKBONES
from dnlnet.convert.family import Checkpoint, Converted, Family
from dnlnet.convert.known_classes import numbered
from dnlnet.convert.names import State, as_linear, size
from dnlnet.data.videos import named_classes
from dnlnet.recipes import find_recipe

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
_POOL = 2  # of keys, in the preset
_USUAL = {"SPATIAL_STRIDES": [1, 2, 2, 2], "SPATIAL_DILATIONS": [1, 1, 1, 1]}  # by stage
_ASSUMED = (
    "no configuration in the file: its blocks are assumed to have NONLOCAL.INSTANTIATION softmax and keys pooled by "
    "2; with dot_product, PySlowFast's default, the weights would be those of another network"
)
_TEST_NOTE = (
    "on crops larger than those it was trained on, PySlowFast averages the probabilities of overlapping 7 x 7 "
    "windows; here the features of the whole crop are averaged, which is the same at 224"
)


def matches(state: State) -> bool:
    """Whether these are names of PySlowFast's networks, or of the Caffe2 models that it reads too.

    >>> import torch
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


def convert(checkpoint: Checkpoint) -> Converted:
    """The classifier of a checkpoint, with the Kinetics recipe whose network it is.

    Raises ValueError for networks that this package has not: two pathways, attention that is a dot product.
    """
    state = checkpoint.state
    if any(_CAFFE2_NAME.fullmatch(name) for name in state):
        raise ValueError(f"this {_CAFFE2}")
    if strange := [name for name in state if re.search(r"\.pathway[1-9]_", name)]:
        raise ValueError(f"has a second pathway ({strange[0]}); only slow-only networks are converted")
    placement = _placement(state)
    cfg = checkpoint.meta.get("cfg")
    settings = _Settings.read(cfg if isinstance(cfg, str) else None, tuple(placement))
    ours = {our: tensor for name, tensor in state.items() if (our := _our_name(name)) is not None}
    for stage, numbers in placement.items():
        for number in numbers:
            ours = as_linear(ours, f"backbone.{stage}.{number}.non_local")
    if settings.blue_first:
        ours["backbone.conv1.weight"] = ours["backbone.conv1.weight"].flip(1)
    recipe = find_recipe(f"kinetics-r50-{'nl' if placement else 'baseline'}")
    model = recipe.model.model_copy(
        update={
            "backbone": _backbone(state),
            "placement": placement or None,
            "block": dict(settings.block),
            "stride_in_1x1": settings.stride_in_1x1,
            "weights": None,
        }
    )
    names, note = numbered(size(state, "head.projection.weight"))
    return Converted(
        ours,
        recipe.model_copy(update={"model": model, "paper": None}),
        named_classes(names),
        (*settings.notes, _TEST_NOTE, note),
        tuple(name for name in state if _our_name(name) is None),
    )


FAMILY = Family("slowfast", "PySlowFast's slow-only networks, with and without non-local blocks", matches, convert)


@dataclass(frozen=True)
class _Settings:
    """What a configuration says about the network that its tensors do not show."""

    stride_in_1x1: bool = False
    blue_first: bool = False  # of the pixels; mean and deviation are the same for all three colours
    block: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, cfg: str | None, stages: tuple[str, ...]) -> "_Settings":
        """From the YAML of a configuration, for a network with blocks in these stages."""
        if cfg is None:
            return cls(notes=(_ASSUMED,) if stages else ())
        try:
            content = yaml.safe_load(cfg) or {}
        except yaml.YAMLError:
            raise ValueError("its cfg is not YAML, so that it does not say what its blocks are") from None
        network, blocks, data = (content.get(part) or {} for part in ("RESNET", "NONLOCAL", "DATA"))
        for key, usual in _USUAL.items():
            if key in network and [stage[0] for stage in network[key]] != usual:
                raise ValueError(f"its RESNET.{key} is {network[key]}; only {usual} is converted")
        return cls(
            bool(network.get("STRIDE_1X1")),
            bool(data.get("REVERSE_INPUT_CHANNEL")),
            _block_options(blocks, stages) if stages else {},
        )


def _block_options(blocks: Mapping[str, Any], stages: tuple[str, ...]) -> dict[str, Any]:
    """Settings beside those of the preset, of blocks as a configuration describes them."""
    kind = blocks.get("INSTANTIATION", "dot_product")
    if kind != "softmax":
        raise ValueError(
            f"its NONLOCAL.INSTANTIATION is {kind}: attention without a softmax, which the blocks of this package do "
            "not have; only softmax is converted"
        )
    numbers = [list(_STAGES.values()).index(stage) for stage in stages]
    groups, pools = blocks.get("GROUP", [[1]] * 4), blocks.get("POOL", [[[1, 2, 2]]] * 4)
    if any(groups[number][0] != 1 for number in numbers):
        raise ValueError(f"its NONLOCAL.GROUP is {groups}: attention among some of the frames; only 1 is converted")
    windows = {tuple(pools[number][0]) for number in numbers}
    frames, rows, columns = min(windows)
    if len(windows) > 1 or frames != 1 or rows != columns:
        raise ValueError(f"its NONLOCAL.POOL is {pools}; only one factor, in space alone, is converted")
    return {} if rows == _POOL else {"pool": rows}


def _our_name(name: str) -> str | None:
    layer, _, tensor = name.rpartition(".")
    if layer in _OUTSIDE:
        return f"{_OUTSIDE[layer]}.{tensor}"
    for pattern, layers, inside in ((_RESIDUAL, _BRANCHES, ""), (_NON_LOCAL, _BLOCK, "non_local.")):
        parts = pattern.fullmatch(layer)
        if parts and parts[3] in layers:
            return f"backbone.{_STAGES[parts[1]]}.{parts[2]}.{inside}{layers[parts[3]]}.{tensor}"
    return None


def _placement(state: State) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for name in state:
        if parts := _NON_LOCAL.fullmatch(name):
            found.setdefault(_STAGES[parts[1]], set()).add(int(parts[2]))
    return {stage: tuple(sorted(numbers)) for stage, numbers in sorted(found.items())}


def _backbone(state: State) -> str:
    places = {(parts[1], parts[2]) for name in state if (parts := _RESIDUAL.fullmatch(name))}
    layers = tuple(sum(stage == s for s, _ in places) for stage in _STAGES)
    width = size(state, "s1.pathway0_stem.conv.weight")
    for name, row in VIDEO_BACKBONES.items():
        if (row.layers, row.width) == (layers, width):
            return name
    known = ", ".join(f"{row.layers} of {row.width}" for row in VIDEO_BACKBONES.values())
    raise ValueError(f"its stages have {layers} residual blocks and its stem {width} channels; known: {known}")
