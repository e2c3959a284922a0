"""Names of residual blocks and matching of backbones, for all converters of video networks."""

from collections.abc import Mapping, Sequence

from dnlnet.backbones.rows import VIDEO_BACKBONES
from dnlnet.conversion.names import State, size

STAGES = ("layer1", "layer2", "layer3", "layer4")
_DEEPEST = max(max(row.layers) for row in VIDEO_BACKBONES.values())  # residual blocks per stage


def residual_names(blocks: Sequence[str], parts: Mapping[str, str]) -> dict[str, str]:
    """Return a table from their names to ours for the residual blocks of all four stages.

    Args:
        blocks: their name of a residual block in each stage, with {} for its number.
        parts: our names of the layers of a residual block by theirs.

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
    """Return the name of our backbone with the same residual blocks and stem width.

    Args:
        state: tensors by their names.
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
