"""Shared by the converters of video networks: names of residual blocks, and matching backbones."""

from collections.abc import Mapping, Sequence

from dnlnet.backbones.rows import VIDEO_BACKBONES
from dnlnet.convert.names import State, size

STAGES = ("layer1", "layer2", "layer3", "layer4")
_DEEPEST = max(max(row.layers) for row in VIDEO_BACKBONES.values())  # residual blocks of a stage


def residual_names(blocks: Sequence[str], parts: Mapping[str, str]) -> dict[str, str]:
    """A table from their names to ours for the residual blocks of all four stages.

    Args:
        blocks: their name of a residual block in each stage, with {} for its number.
        parts: layers of a residual block: their names and ours.

    >>> residual_names(["s2.res{}"] * 4, {"branch1": "downsample.0"})["s2.res1.branch1"]
    'backbone.layer4.1.downsample.0'
    """
    return {
        f"{block.format(number)}.{theirs}": f"backbone.{stage}.{number}.{ours}"
        for stage, block in zip(STAGES, blocks, strict=True)
        for number in range(_DEEPEST)
        for theirs, ours in parts.items()
    }


def find_video_backbone(state: State, blocks: Sequence[str], stem: str) -> str:
    """The name of our backbone with the same residual blocks and stem width.

    Args:
        state: tensors under their names.
        blocks: as for `residual_names`.
        stem: name of the first convolution's weight.
    """
    layers = tuple(
        sum(any(name.startswith(f"{block.format(number)}.") for name in state) for number in range(_DEEPEST + 1))
        for block in blocks
    )
    width = size(state, stem)
    for name, row in VIDEO_BACKBONES.items():
        if (row.layers, row.width) == (layers, width):
            return name
    known = ", ".join(f"{row.layers} of {row.width}" for row in VIDEO_BACKBONES.values())
    raise ValueError(f"its stages have {layers} residual blocks and its stem {width} channels; known: {known}")
