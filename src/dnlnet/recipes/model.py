"""The backbone that a recipe's model describes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dnlnet.backbones import Backbone, load_weights
from dnlnet.recipes.schema import Model

IMAGENET = "imagenet"


def build_backbone(
    model: Model,
    output_stride: int | None,
    weights: bool,
    report: Callable[[str], None] = lambda _: None,
    dilations: Sequence[Sequence[int]] | None = None,
) -> Backbone:
    """The backbone of a recipe's model, with the weights that it names if they are wanted."""
    source = model.weights if weights else None
    backbone = Backbone(
        model.backbone,
        output_stride,
        stride_in_1x1=model.stride_in_1x1,
        dilations=dilations,
        ceil_pool=model.ceil_pool,
        caffe_pixels=model.caffe_pixels,
        pretrained=source == IMAGENET,
    )
    if source is not None and source != IMAGENET:
        report(f"{source}: {load_weights(backbone, Path(source))}")
    return backbone
