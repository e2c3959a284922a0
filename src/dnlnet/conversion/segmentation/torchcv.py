"""Converter of the authors' segmentation networks, whose code is built on torchcv."""

from typing import Any

from dnlnet.conversion.family import Assumption, Converted, Family, ForeignCheckpoint
from dnlnet.conversion.names import State, check_context, flatten_convolutions, rename_tensors, size
from dnlnet.conversion.resnets import find_resnet
from dnlnet.conversion.segmentation.data_sets import find_data
from dnlnet.conversion.segmentation.torchcv_config import TorchcvConfig
from dnlnet.engine.settings import Optim
from dnlnet.recipes.model import pixel_fields
from dnlnet.segmentation.recipe import SegmentationRecipe
from dnlnet.segmentation.recipes import segmentation_recipes
from dnlnet.segmentation.schema import FCN, Data

# Their names and ours.
_PLAIN_STEM = {"backbone.prefix.conv1": "backbone.body.conv1", "backbone.prefix.bn1": "backbone.body.bn1"}
_DEEP_STEM = {
    "backbone.prefix.conv1": "backbone.body.conv1.0",
    "backbone.prefix.bn1": "backbone.body.conv1.1",
    "backbone.prefix.conv2": "backbone.body.conv1.3",
    "backbone.prefix.bn2": "backbone.body.conv1.4",
    "backbone.prefix.conv3": "backbone.body.conv1.6",
    "backbone.prefix.bn3": "backbone.body.bn1",
}
_STAGES = {f"backbone.layer{stage}": f"backbone.body.layer{stage}" for stage in range(1, 5)}
_HEAD = {
    "conva.0": "head.reduce.0",
    "conva.1.0": "head.reduce.1",
    "ctb.conv_query": "head.block.query",
    "ctb.conv_key": "head.block.key",
    "ctb.conv_value": "head.block.value",
    "ctb.conv_mask": "head.block.saliency",
    "ctb.conv_out": "head.block.projection",
    "ctb.out_bn": "head.block.norm",
    "ctb.gamma": "head.block.gamma",
    "convb.0": "head.refine.0",
    "convb.1.0": "head.refine.1",
    "bottleneck.0": "head.fuse.0",
    "bottleneck.1.0": "head.fuse.1",
    "bottleneck.3": "head.classifier",
}
_AUXILIARY = {
    "dsn.0.conv": "auxiliary.0",
    "dsn.0.bn_relu.0": "auxiliary.1",
    "dsn.2": "auxiliary.4",
}
# Modules of networks with and without a block.
_MODULES = ("nlm", "gcb")

# Their pretrained weights; timm's expect other pixels.
_PRETRAINED = {"resnet101s": "3x3resnet101-imagenet.pth"}
# Variants by the presence of a query and of a saliency.
_VARIANTS = {(True, True): "dnl", (True, False): "nl", (False, True): "gc", (False, False): None}
# Data set in the name of the authors' recipe.
_RELEASED = {
    "cityscapes": "cityscapes",
    "ade20k": "ade20k",
    "pascal_context": "pascal_context",
    "pascal_context_60": "pascal_context",
}


def matches(state: State) -> bool:
    """Return whether the names are those of their code."""
    return any(f"{module}.conva.0.weight" in state for module in _MODULES) and "backbone.prefix.conv1.weight" in state


def convert(checkpoint: ForeignCheckpoint) -> Converted:
    """Convert a checkpoint. Its configuration or the authors' README gives what the weights do not show."""
    theirs = checkpoint.state
    check_context(theirs)
    module = next(name for name in _MODULES if f"{name}.conva.0.weight" in theirs)
    deep = "backbone.prefix.conv3.weight" in theirs
    names = {
        **(_DEEP_STEM if deep else _PLAIN_STEM),
        **_STAGES,
        **{f"{module}.{part}": ours for part, ours in _HEAD.items()},
        **_AUXILIARY,
    }
    state, unused = rename_tensors(theirs, names)
    block = f"{module}.ctb"
    variant = _VARIANTS[f"{block}.conv_query.weight" in theirs, f"{block}.conv_mask.weight" in theirs]
    if variant == "gc":
        state.pop("head.block.gamma", None)  # gate of the missing pairwise term
    width = size(theirs, f"{module}.conva.0.weight")
    data, classes, assumed = find_data(size(theirs, f"{module}.bottleneck.3.weight"))
    config = TorchcvConfig.of(checkpoint.meta)
    options: dict[str, Any] = {}
    if variant is not None:
        variant, options = config.block(variant)
    if "head.block.projection.weight" in state:
        reduction = width // size(state, "head.block.value.weight")
        bias = "head.block.value.bias" in state
        options |= {"projection": True, "value_reduction": reduction, "value_bias": bias}
    if "head.block.norm.weight" in state:
        options["gate"] = "scalar_pairwise_norm"
    has_auxiliary = "dsn.2.weight" in theirs
    backbone = find_resnet(theirs, "s" if deep else "")
    output_stride, dilations = config.strides()
    model = FCN(
        backbone=backbone,
        weights=_PRETRAINED.get(backbone),
        output_stride=output_stride,
        dilations=dilations,
        ceil_pool=True,
        **pixel_fields(config.network_pixels()),
        variant=variant,
        preset="authors",
        block=options,
        width=width,
        auxiliary=has_auxiliary,
        auxiliary_width=size(theirs, "dsn.0.conv.weight") if has_auxiliary else None,
        auxiliary_bias="dsn.0.conv.bias" in theirs,
    )
    return Converted(
        flatten_convolutions(state, "head.block"),
        _recipe(model, data, config),
        classes,
        (*config.notes, *([assumed] if assumed else [])),
        _assumed(variant, config),
        unused,
        names,
    )


FAMILY = Family(
    "torchcv",
    "the authors' segmentation networks on ResNet-50 or 101",
    matches,
    convert,
    ("backbone.", *(f"{module}." for module in _MODULES)),
)


def _recipe(model: FCN, data: str, config: TorchcvConfig) -> SegmentationRecipe:
    """Return the authors' recipe for this data set, with the weight decay of the configuration."""
    name = f"{_RELEASED.get(data, 'cityscapes')}-r101_authors-dnl"
    base = next(recipe for recipe in segmentation_recipes() if recipe.name == name)
    free = ("block.query", "block.key") if config.frees_embeddings(model.variant) else ()
    weights = base.loss.class_weights if data in _RELEASED else None  # one per class of that data set
    return base.model_copy(
        update={
            "name": f"torchcv-{data}-{model.backbone}-{model.variant or 'baseline'}",
            "model": model,
            "data": Data(**{**base.data.model_dump(), "name": data}),
            "loss": base.loss.model_copy(update={"class_weights": weights}),
            "optim": Optim(**{**base.optim.model_dump(), "no_decay": free}),
            "paper": None,
            "measured": None,
        }
    )


_TEMPERATURE = "--set model.preset=authors_temperature --set model.block.temperature="
_ADVICE = {
    "dnl": "the weights do not show how queries and keys are centred and scaled: one mean per sample and no scale "
    f"are assumed, as in the recipe of the authors' README. {_TEMPERATURE}0.05 is for their configurations of "
    f"Cityscapes with a temperature, {_TEMPERATURE}0.1 for those of ADE20K and PASCAL-Context, and --set "
    "model.block.centring=none for those of the network nonlocalnowd that whiten by channel, which has no effect "
    "there",
    "nl": "the weights do not show the terms of the attention: the standard block, scaled, is assumed. --set "
    f"model.variant=nl_pairwise {_TEMPERATURE}0.05 is for their configurations that whiten by channel (such as "
    f"NLin_nogc), --set model.variant=dnl_dagger --set model.block.unary_scaled=false {_TEMPERATURE}0.06 for those "
    "that also have with_unary (NLunary)",
}
_STRIDE = Assumption(
    "an output stride of 8 is assumed, as in all their configurations; --set model.output_stride changes it",
    ("model.output_stride",),
)
_PIXELS = Assumption(
    "pixels are assumed to be blue first, minus Caffe's mean, as in all their configurations; "
    "--set model.caffe_pixels=false changes it",
    ("model.caffe_pixels",),
)


def _assumed(variant: str | None, config: TorchcvConfig) -> tuple[Assumption, ...]:
    found = []
    if variant in _ADVICE and not config.nonlocal_:
        found.append(Assumption(_ADVICE[variant], ("model.preset", "model.variant", "model.block")))
    if "backbone" not in config.network:
        found.append(_STRIDE)
    if "normalize" not in config.pixels:
        found.append(_PIXELS)
    return tuple(found)
