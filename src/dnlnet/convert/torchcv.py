"""The authors' segmentation code, which is built on torchcv: its non-local, unary and plain networks on ResNets."""

from collections.abc import Mapping
from typing import Any

from dnlnet.convert.family import Checkpoint, Converted, Family
from dnlnet.convert.known_classes import find_data
from dnlnet.convert.names import DEEP_STEM, PLAIN_STEM, State, as_linear, find_resnet, renamed, size
from dnlnet.recipes import find_segmentation_recipe
from dnlnet.recipes.schema import Data, Optim, SegmentationRecipe, SegmentorModel

# Their names and ours.
_BACKBONE = {
    "backbone.prefix.conv2": "backbone.body.conv1.3",
    "backbone.prefix.bn2": "backbone.body.conv1.4",
    "backbone.prefix.conv3": "backbone.body.conv1.6",
    "backbone.prefix.bn3": "backbone.body.bn1",
    **{f"backbone.layer{stage}": f"backbone.body.layer{stage}" for stage in range(1, 5)},
}
# The first convolution is the whole stem, or the first of three.
_STEMS = {
    False: {"backbone.prefix.conv1": "backbone.body.conv1", "backbone.prefix.bn1": "backbone.body.bn1"},
    True: {"backbone.prefix.conv1": "backbone.body.conv1.0", "backbone.prefix.bn1": "backbone.body.conv1.1"},
}
_HEAD = {
    "conva.0": "head.reduce.0",
    "conva.1.0": "head.reduce.1",
    "ctb.conv_query": "head.block.query",
    "ctb.conv_key": "head.block.key",
    "ctb.conv_value": "head.block.value",
    "ctb.conv_mask": "head.block.saliency",
    "ctb.conv_out": "head.block.projection",
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
# Networks with a block, and without one.
_MODULES = ("nlm", "gcb")
_NAMES = {
    **_BACKBONE,
    **{f"{module}.{theirs}": ours for module in _MODULES for theirs, ours in _HEAD.items()},
    **_AUXILIARY,
}

_BACKBONES: Mapping[tuple[str, tuple[int, ...]], str] = {
    (DEEP_STEM, (3, 4, 23, 3)): "resnet101s",
    (DEEP_STEM, (3, 4, 6, 3)): "resnet50s",
    (PLAIN_STEM, (3, 4, 23, 3)): "resnet101",
    (PLAIN_STEM, (3, 4, 6, 3)): "resnet50",
}
# The file that their training begins with; timm's weights are not for such pixels.
_PRETRAINED = {"resnet101s": "3x3resnet101-imagenet.pth"}
# By whether there is a query, and a saliency.
_VARIANTS = {(True, True): "dnl", (True, False): "nl", (False, True): "gc", (False, False): None}
# The names of their whitening, and what is centred; a name that a version of their code does not know does nothing.
_CENTRING = {"ln_nostd": "sample", "in_nostd": "channel", "channel": "channel"}
# The data sets that the paper's recipes are named after.
_PAPER = {
    "cityscapes": "cityscapes",
    "ade20k": "ade20k",
    "pascal_context": "pascal_context",
    "pascal_context_60": "pascal_context",
}


def matches(state: State) -> bool:
    """Whether a state dict has their names."""
    return any(f"{module}.conva.0.weight" in state for module in _MODULES) and "backbone.prefix.conv1.weight" in state


def convert(checkpoint: Checkpoint) -> Converted:
    """The model of a checkpoint; what its weights leave open is read from its configuration, or is the README's."""
    theirs = checkpoint.state
    module = next(name for name in _MODULES if f"{name}.conva.0.weight" in theirs)
    deep = "backbone.prefix.conv3.weight" in theirs
    state, unused = renamed(theirs, _STEMS[deep] | _NAMES)
    block = f"{module}.ctb"
    variant = _VARIANTS[f"{block}.conv_query.weight" in theirs, f"{block}.conv_mask.weight" in theirs]
    if variant == "gc":
        state.pop("head.block.gamma", None)  # of the pairwise term alone, which is not there
    width = size(theirs, f"{module}.conva.0.weight")
    data, classes, assumed = find_data(size(theirs, f"{module}.bottleneck.3.weight"))
    options, notes = ({}, []) if variant is None else _block(variant, _part(checkpoint.meta, "config_dict"))
    if "head.block.projection.weight" in state:
        reduction = width // size(state, "head.block.value.weight")
        bias = "head.block.value.bias" in state
        options |= {"projection": True, "value_reduction": reduction, "value_bias": bias}
    has_auxiliary = "dsn.2.weight" in theirs
    backbone = find_resnet(theirs, "backbone.", DEEP_STEM if deep else PLAIN_STEM, _BACKBONES)
    model = SegmentorModel(
        backbone=backbone,
        weights=_PRETRAINED.get(backbone),
        ceil_pool=True,
        caffe_pixels=True,
        variant=variant,
        preset="authors",
        block=options,
        width=width,
        auxiliary=has_auxiliary,
        auxiliary_width=size(theirs, "dsn.0.conv.weight") if has_auxiliary else None,
        auxiliary_bias="dsn.0.conv.bias" in theirs,
    )
    notes.append(
        "pixels are assumed to be as in all their configurations, blue first and without Caffe's mean; "
        "--set model.caffe_pixels=false changes it"
    )
    notes += [assumed] if assumed else []
    return Converted(as_linear(state, "head.block"), _recipe(model, data), classes, tuple(notes), unused)


FAMILY = Family(
    "torchcv", "the authors' segmentation networks on ResNet-50 or 101, output stride 8", matches, convert
)


def _recipe(model: SegmentorModel, data: str) -> SegmentationRecipe:
    """The paper's recipe for this data set, with what their code does otherwise."""
    base = find_segmentation_recipe(f"{_PAPER.get(data, 'cityscapes')}-r101-dnl")
    free = ("block.query", "block.key") if model.variant in ("nl", "dnl") and "scaled" not in model.block else ()
    return base.model_copy(
        update={
            "name": f"torchcv-{data}-{model.backbone}-{model.variant or 'baseline'}",
            "model": model,
            "data": Data(**{**base.data.model_dump(), "name": data, "aspects": (0.9, 1.1)}),
            "loss": base.loss.model_copy(update={"auxiliary_weight": 0.4}),
            "optim": Optim(**{**base.optim.model_dump(), "no_decay": free}),
            "paper": None,
            "measured": None,
        }
    )


def _block(variant: str, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Options of the block that depart from the preset, and what was assumed."""
    chosen = _part(config, "nonlocal")
    if not chosen:
        what = {"dnl": "centred over the whole sample, logits not scaled", "nl": "the standard block, logits scaled"}
        if variant not in what:
            return {}, []
        return {}, [
            f"the weights do not tell how queries and keys are whitened: {what[variant]}, is assumed, as in the "
            "recipe of the authors' README; --set model.preset=authors_temperature, or --set "
            "model.block.centring=channel --set model.block.scaled=true --set model.block.temperature=0.1, changes it"
        ]
    notes: list[str] = []
    options: dict[str, Any] = {}
    if chosen.get("downsample") is True:
        options["pool"] = 2
    if variant == "gc":
        return options, notes
    if "temp" in chosen:
        options |= {"scaled": True, "temperature": float(chosen["temp"])}
    else:
        options["scaled"] = "nl" not in chosen.get("nowd", ())
    kinds = [chosen["whiten_type"]] if isinstance(chosen.get("whiten_type"), str) else chosen.get("whiten_type", [])
    if variant == "dnl":
        known = [kind for kind in kinds if kind in _CENTRING]
        if list(kinds) != known or len(known) != 1:
            raise ValueError(f"its block whitens by {list(kinds)}; this package has: {', '.join(_CENTRING)}")
        options["centring"] = _CENTRING[known[0]]
        notes.append(f"queries and keys are centred by {options['centring']}, as its configuration ({known[0]}) says")
    elif kinds or chosen.get("with_unary") is True:
        notes.append(
            f"its configuration whitens by {list(kinds)}, but the standard block is assumed; --set "
            "model.variant=nl_pairwise, or dnl_dagger, changes it"
        )
    return options, notes


def _part(meta: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = meta.get(key)
    return found if isinstance(found, Mapping) else {}
