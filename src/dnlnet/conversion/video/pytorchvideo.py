"""Converter of pytorchvideo's `slow_r50` and networks with the same layers."""

from dnlnet.conversion.family import Assumption, Converted, Family, ForeignCheckpoint
from dnlnet.conversion.names import State, number_classes, rename_tensors, size
from dnlnet.conversion.video.networks import find_video_backbone, residual_names
from dnlnet.registry import find_recipe

_STEM = "blocks.0.conv.weight"
_HEAD = "blocks.5.proj.weight"
_BLOCKS = tuple(f"blocks.{stage}.res_blocks.{{}}" for stage in range(1, 5))
_NAMES = {
    "blocks.0.conv": "backbone.conv1",
    "blocks.0.norm": "backbone.bn1",
    "blocks.5.proj": "classifier",
    **residual_names(
        _BLOCKS,
        ["branch1_conv", "branch1_norm", *(f"branch2.{kind}_{x}" for x in "abc" for kind in ("conv", "norm"))],
    ),
}
_POOL = (
    "pytorchvideo averages windows of 8 frames and 7 x 7 positions, and then all windows; here all positions are "
    "averaged at once, which is the same for 8 frames of 224 x 224"
)
_CLIPS = Assumption(
    "clips are assumed to be those of slow_r50: 8 frames with a stride of 8, pixels with mean 0.45 and std "
    "0.225, red first; --set data.frames=..., data.stride, data.mean and data.deviation change it",
    ("data.frames", "data.stride", "data.mean", "data.deviation"),
)
_STRIDES = (
    "the weights do not show strides: those of slow_r50 are assumed, 2 x 2 in the stem and its max-pool, and 1, 2, "
    "2 and 2 in the stages; a network made with others, such as stage_spatial_h_stride, cannot be converted"
)


def matches(state: State) -> bool:
    """Return whether the names are those of pytorchvideo's ResNets, with a stem, four stages and a head.

    >>> matches({})
    False
    """
    return {_STEM, _HEAD, "blocks.1.res_blocks.0.branch2.conv_a.weight"} <= set(state)


def convert(checkpoint: ForeignCheckpoint) -> Converted:
    """Convert a checkpoint to a video classifier with the baseline recipe for Kinetics."""
    theirs = checkpoint.state
    state, unused = rename_tensors(theirs, _NAMES)
    recipe = find_recipe("kinetics-r50-baseline")
    backbone = find_video_backbone(theirs, _BLOCKS, _STEM)
    model = recipe.model.model_copy(update={"backbone": backbone, "weights": None})
    classes, note = number_classes(size(theirs, _HEAD))
    return Converted(
        state,
        recipe.model_copy(update={"model": model, "paper": None, "measured": None}),
        classes,
        (_STRIDES, _POOL, note),
        (_CLIPS,),
        unused,
        _NAMES,
    )


FAMILY = Family(
    "pytorchvideo", "slow_r50 and other slow-only ResNets of pytorchvideo", matches, convert, ("blocks.",)
)
