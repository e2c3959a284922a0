"""What the builders of all tasks share."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dnlnet.backbones import Backbone, load_weights
from dnlnet.recipes.schema import Model, Recipe

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


def required_folder(recipe: Recipe, root: Path | None) -> Path:
    """The folder of a recipe's data set, which has to be given."""
    if root is None:
        raise ValueError(
            f"{recipe.name} needs the folder of its data set, {recipe.data.name}: give it with --data DIR"
        )
    return root
