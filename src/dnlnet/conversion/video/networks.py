"""Residual blocks by name, and matching backbones, for all converters of video networks."""

from collections.abc import Sequence

from dnlnet.backbones.rows import VIDEO_BACKBONES
from dnlnet.conversion.names import State, size

STAGES = ("layer1", "layer2", "layer3", "layer4")
_LAYERS = ("downsample.0", "downsample.1", "conv1", "bn1", "conv2", "bn2", "conv3", "bn3")
_DEEPEST = max(max(row.layers) for row in VIDEO_BACKBONES.values())  # residual blocks per stage


def residual_names(blocks: Sequence[str], theirs: Sequence[str], ours: Sequence[str] = _LAYERS) -> dict[str, str]:
    """Return a table from their names to ours for the layers in residual blocks of all four stages.

    Args:
        blocks: Their name of a residual block in each stage, with {} for its number.
        theirs: Their names of the layers of a residual block.
        ours: Our names of the same layers. Default: shortcut and its norm, then each convolution and its norm.

    >>> residual_names(["s2.res{}"] * 4, ["branch1"], ["downsample.0"])["s2.res1.branch1"]
    'backbone.layer4.1.downsample.0'
    """
    return {
        f"{block.format(number)}.{their}": f"backbone.{stage}.{number}.{our}"
        for stage, block in zip(STAGES, blocks, strict=True)
        for number in range(_DEEPEST)
        for their, our in zip(theirs, ours, strict=True)
    }


def find_video_backbone(state: State, blocks: Sequence[str], stem: str) -> str:
    """Return the name of our backbone with the same residual blocks and stem width.

    Args:
        state: Tensors by their names.
        blocks: As for `residual_names`.
        stem: Name of the first convolution's weight.
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
