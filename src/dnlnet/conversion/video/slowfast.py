"""Converter of slow-only networks of PySlowFast.

The network is the same: a ResNet with blocks after the last activation of residual blocks. Checkpoints contain their
configuration as YAML under `cfg`.
"""

import pickletools
import re
from pathlib import Path

from dnlnet.conversion.family import Converted, Family, ForeignCheckpoint
from dnlnet.conversion.names import State, flatten_convolutions, number_classes, rename_tensors, size
from dnlnet.conversion.video.networks import STAGES, find_video_backbone, residual_names
from dnlnet.conversion.video.slowfast_config import SlowFastConfig
from dnlnet.registry import find_recipe

_STEM = "s1.pathway0_stem.conv.weight"
_BLOCKS = tuple(f"s{stage}.pathway0_res{{}}" for stage in range(2, 6))
_NON_LOCALS = tuple(f"s{stage}.pathway0_nonlocal{{}}" for stage in range(2, 6))
_NAMES = {
    "s1.pathway0_stem.conv": "backbone.conv1",
    "s1.pathway0_stem.bn": "backbone.bn1",
    "head.projection": "classifier",
    **residual_names(
        _BLOCKS, ["branch1", "branch1_bn", *(f"branch2.{x}{norm}" for x in "abc" for norm in ("", "_bn"))]
    ),
    **residual_names(
        _NON_LOCALS,
        ("conv_theta", "conv_phi", "conv_g", "conv_out", "bn", "norm"),  # norm: in the first versions
        tuple(f"non_local.{part}" for part in ("query", "key", "value", "projection", "norm", "norm")),
    ),
}
_NON_LOCAL = re.compile(r"s([2-5])\.pathway0_nonlocal(\d+)\..+")
_CAFFE2_NAME = re.compile(r"res\d_\d+_branch2[abc]_w")
_CAFFE2 = (
    "is a Caffe2 model of PySlowFast's model zoo, a pickle of arrays under 'blobs', which cannot be read without "
    "executing it; load it in PySlowFast with TEST.CHECKPOINT_TYPE caffe2 and save the network's state dict"
)


def matches(state: State) -> bool:
    """Return whether the names are those of PySlowFast's networks, or of the Caffe2 models that it also reads.

    >>> import torch
    >>> matches({"s1.pathway0_stem.conv.weight": torch.empty(0)})
    True
    """
    return _STEM in state or any(_CAFFE2_NAME.fullmatch(name) for name in state)


def caffe2_problem(path: Path) -> str | None:
    """Return why a Caffe2 model cannot be read, None for other files; nothing in it is executed."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"\x80":  # first byte of every pickle since protocol 2
                return None
            file.seek(0)
            first = next((op[1] for op in pickletools.genops(file) if isinstance(op[1], str)), None)
    except (ValueError, OverflowError, MemoryError):
        return None
    return f"{path}: {_CAFFE2}" if first == "blobs" else None


def convert(checkpoint: ForeignCheckpoint) -> Converted:
    """Convert a checkpoint to a video classifier with the matching recipe for Kinetics.

    Raises ValueError for unsupported networks, such as those with two pathways.
    """
    theirs = checkpoint.state
    if any(_CAFFE2_NAME.fullmatch(name) for name in theirs):
        raise ValueError(f"this {_CAFFE2}")
    if strange := [name for name in theirs if re.search(r"\.pathway[1-9]_", name)]:
        raise ValueError(f"it has a second pathway ({strange[0]}); supported: slow-only networks")
    placement = _placement(theirs)
    config = SlowFastConfig.of(checkpoint.meta)
    block, assumed = config.block(tuple(placement))
    state, unused = rename_tensors(theirs, _NAMES)
    for stage, numbers in placement.items():
        for number in numbers:
            state = flatten_convolutions(state, f"backbone.{stage}.{number}.non_local")
    if config.part("DATA").get("REVERSE_INPUT_CHANNEL") and size(theirs, _STEM, 1):
        state["backbone.conv1.weight"] = state["backbone.conv1.weight"].flip(1)
    recipe = config.apply_to(find_recipe(f"kinetics-r50-{'nl' if placement else 'baseline'}"))
    model = recipe.model.model_copy(
        update={
            "backbone": find_video_backbone(theirs, _BLOCKS, _STEM),
            "placement": placement or None,
            "block": block,
            "stride_in_1x1": bool(config.part("RESNET").get("STRIDE_1X1")),
            "weights": None,
        }
    )
    classes, note = number_classes(size(theirs, "head.projection.weight"))
    return Converted(
        state,
        recipe.model_copy(update={"model": model, "paper": None, "measured": None}),
        classes,
        (config.head_note(), note),
        (*config.assumed, *assumed),
        unused,
        _NAMES,
    )


FAMILY = Family(
    "slowfast",
    "PySlowFast's slow-only networks, with and without non-local blocks",
    matches,
    convert,
    ("s1.", "s2.", "s3.", "s4.", "s5.", "head."),
    "cfg",
)


def _placement(state: State) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for name in state:
        if parts := _NON_LOCAL.fullmatch(name):
            found.setdefault(STAGES[int(parts[1]) - 2], set()).add(int(parts[2]))
    return {stage: tuple(sorted(numbers)) for stage, numbers in sorted(found.items())}
