"""Converter of mmsegmentation's DNL, non-local and plain FCN heads on ResNets."""

import re
from collections.abc import Mapping
from typing import Any

from dnlnet.conversion.family import Assumption, Converted, Family, ForeignCheckpoint
from dnlnet.conversion.mm_config import MMConfig
from dnlnet.conversion.names import State, check_context, flatten_convolutions, rename_tensors, size
from dnlnet.conversion.resnets import find_resnet
from dnlnet.conversion.segmentation.data_sets import find_data
from dnlnet.conversion.segmentation.mmseg_facts import MmsegFacts
from dnlnet.engine.settings import Optim, Schedule
from dnlnet.recipes.model import pixel_fields
from dnlnet.segmentation.recipe import SegmentationRecipe
from dnlnet.segmentation.schema import FCN, Data, Evaluation, Loss

# Their names and ours.
_DEEP_STEM = {
    "backbone.stem.0": "backbone.body.conv1.0",
    "backbone.stem.1": "backbone.body.conv1.1",
    "backbone.stem.3": "backbone.body.conv1.3",
    "backbone.stem.4": "backbone.body.conv1.4",
    "backbone.stem.6": "backbone.body.conv1.6",
    "backbone.stem.7": "backbone.body.bn1",
}
_PLAIN_STEM = {f"backbone.{part}": f"backbone.body.{part}" for part in ("conv1", "bn1")}
_BLOCK = {
    "theta.conv": "head.block.query",
    "phi.conv": "head.block.key",
    "g.conv": "head.block.value",
    "conv_mask": "head.block.saliency",
    "conv_out.conv": "head.block.projection",
    "conv_out.bn": "head.block.norm",
}
# The block is named after its kind.
_VARIANTS = {"dnl_block": "dnl", "nl_block": "nl"}
_HEADS = {
    "decode_head.convs.0.conv": "head.reduce.0",
    "decode_head.convs.0.bn": "head.reduce.1",
    "decode_head.convs.1.conv": "head.refine.0",
    "decode_head.convs.1.bn": "head.refine.1",
    "decode_head.conv_cat.conv": "head.fuse.0",
    "decode_head.conv_cat.bn": "head.fuse.1",
    "decode_head.conv_seg": "head.classifier",
    "auxiliary_head.convs.0.conv": "auxiliary.0",
    "auxiliary_head.convs.0.bn": "auxiliary.1",
    "auxiliary_head.conv_seg": "auxiliary.4",
}


def matches(state: State) -> bool:
    """Return whether the names are those of mmsegmentation's networks."""
    return all(any(name.startswith(part) for name in state) for part in ("backbone.", "decode_head."))


def convert(checkpoint: ForeignCheckpoint) -> Converted:
    """Convert a checkpoint. The configuration or the file name gives the settings that the weights do not show."""
    theirs, name = checkpoint.state, checkpoint.path.name
    _check_network(theirs)
    averaged = [name for name in theirs if name.startswith("ema_")]
    kind = next((kind for kind in _VARIANTS if f"decode_head.{kind}.g.conv.weight" in theirs), None)
    deep = "backbone.stem.0.weight" in theirs
    names = {
        **(_DEEP_STEM if deep else _PLAIN_STEM),
        **{f"backbone.layer{stage}": f"backbone.body.layer{stage}" for stage in range(1, 5)},
        **_HEADS,
        **({f"decode_head.{kind}.{part}": ours for part, ours in _BLOCK.items()} if kind else {}),
    }
    state, unused = rename_tensors({name: x for name, x in theirs.items() if name not in averaged}, names)
    variant = None if kind is None else _VARIANTS[kind]
    config = MMConfig.of(checkpoint.meta)
    width = size(theirs, "decode_head.convs.0.conv.weight")
    has_auxiliary = "auxiliary_head.conv_seg.weight" in theirs
    join_input = "decode_head.conv_cat.conv.weight" in theirs
    data, classes, assumed = find_data(size(theirs, "decode_head.conv_seg.weight"), *_find_classes(checkpoint.meta))
    facts = MmsegFacts(name, config, data, checkpoint.meta.get("iter"))
    model = FCN(
        backbone=find_resnet(theirs, "c" if deep else ""),
        output_stride=facts.output_stride,
        dilations=facts.dilations,
        stride_in_1x1=facts.stride_in_1x1,
        **pixel_fields(facts.pixels),
        head_dilation=facts.head_dilation,
        auxiliary_dilation=facts.auxiliary_dilation,
        join_input=join_input,
        variant=variant,
        preset="mmseg",
        block={} if variant is None else _block(config.part("model", "decode_head"), state, width),
        width=width,
        auxiliary=has_auxiliary,
        auxiliary_width=size(theirs, "auxiliary_head.convs.0.conv.weight") if has_auxiliary else None,
        auxiliary_bias="auxiliary_head.convs.0.conv.bias" in theirs,
        align_corners=facts.align_corners,
    )
    notes = [*config.notes, *facts.notes]
    notes += [f"left out: an averaged copy of the weights, {len(averaged)} tensors"] if averaged else []
    notes += [assumed] if assumed else []
    return Converted(
        flatten_convolutions(state, "head.block"),
        _recipe(model, data, facts),
        classes,
        tuple(notes),
        (
            *facts.assumed,
            *([] if variant is None or "decode_head" in config.part("model") else [_logits(name, variant)]),
        ),
        unused,
        names,
    )


FAMILY = Family(
    "mmsegmentation",
    "DNLHead, NLHead and FCNHead on ResNet-50 or 101",
    matches,
    convert,
    ("backbone.", "neck.", "decode_head."),
    "config",
)


def _check_network(state: State) -> None:
    """Raise for layers without a counterpart in our networks."""
    check_context(state)
    heads = {name.split(".")[1] for name in state if name.startswith("decode_head.")}
    if strange := sorted(heads - {"convs", "conv_cat", "conv_seg", *_VARIANTS}):
        raise ValueError(
            f"its decode_head has the layers {', '.join(strange)}; supported: DNLHead, NLHead and FCNHead, of convs, "
            "conv_cat, conv_seg, dnl_block and nl_block"
        )
    if size(state, "decode_head.conv_seg.weight") == 1:
        raise ValueError(
            "its decode_head has one output, for two classes and a threshold; supported: one output per class"
        )
    if any(name.startswith("backbone.layer") and ".downsample.2." in name for name in state):
        raise ValueError(
            "its backbone is a ResNetV1d, whose shortcuts pool by averages; supported: ResNet and ResNetV1c"
        )


def _recipe(model: FCN, data: str, facts: MmsegFacts) -> SegmentationRecipe:
    """Return mmsegmentation's recipe for such a model, as far as this package supports it."""
    # Training images of Cityscapes and PASCAL-Context keep their size.
    trained = None if data == "cityscapes" or data.startswith("pascal_context") else facts.resizing.short
    crop = facts.crop or ((512, 1024) if data == "cityscapes" else (512, 512))
    free = ("block.query", "block.key") if model.variant == "dnl" and facts.windowed else ()
    return SegmentationRecipe(
        name=f"mmseg-{data}-{model.backbone}-{model.variant or 'baseline'}",
        model=model,
        data=Data(name=data, crop=crop, short_side=trained, brightness=32),
        loss=Loss(auxiliary_weight=0.4),
        optim=Optim(lr=0.01, weight_decay=5e-4, no_decay=free),
        schedule=Schedule(iterations=facts.iterations, batch=8 if data == "cityscapes" else 16),
        evaluation=Evaluation(
            window=facts.window,
            stride=facts.stride,
            short_side=facts.resizing.short,
            long_side=facts.resizing.long,
            divisor=facts.divisor,
            image_corners=False,  # OpenCV aligns the borders of images when it resizes
        ),
    )


def _block(head: Mapping[str, Any], state: State, width: int) -> dict[str, Any]:
    """Return the options that differ from the preset: widths from the tensors, logits from the configuration."""
    mode = head.get("mode", "embedded_gaussian")
    if mode not in ("embedded_gaussian", "dot_product"):
        raise ValueError(f"its block has the mode {mode}; supported: embedded_gaussian and dot_product")
    options: dict[str, Any] = {}
    reduction = width // size(state, "head.block.value.weight")
    if reduction != 2:
        options |= {"embed_reduction": reduction, "value_reduction": reduction}
    if mode == "dot_product":  # has neither scale nor temperature
        dots = {"attention": "dot", "scaled": False}
        return options | dots | ({"temperature": 1.0} if "head.block.saliency.weight" in state else {})
    temperature = head.get("temperature", 0.05)
    if "head.block.saliency.weight" in state and temperature != 0.05:
        if not isinstance(temperature, int | float):
            raise ValueError(f"its decode_head.temperature is {temperature!r}; expected a number")
        options["temperature"] = float(temperature)
    if head.get("use_scale") is False:
        options["scaled"] = False
    return options


# Published files, which have the defaults: dnl_r50-d8_512x1024_..., nonlocal_r101-d8_...
_PUBLISHED = re.compile(r"(dnl|nonlocal)_r\d+[a-z]?-d\d+_")


def _logits(name: str, variant: str) -> Assumption:
    """Return the assumption about a block without a configuration."""
    dots = "--set model.block.attention=dot --set model.block.scaled=false"
    divisor = " and temperature 0.05" if variant == "dnl" else ""
    other = " --set model.block.temperature=1" if variant == "dnl" else ""
    hotter = ", --set model.block.temperature=... sets another temperature" if variant == "dnl" else ""
    if _PUBLISHED.match(name):
        text = (
            f"its block is assumed to have the mode embedded_gaussian with use_scale{divisor}, as in their "
            f"configurations; {dots}{other} is dot_product, --set model.block.scaled=false is use_scale=False{hotter}"
        )
        return Assumption(text, ("model.block",))
    text = (
        f"--set model.block.attention=softmax for the mode embedded_gaussian with use_scale{divisor}, or {dots}"
        f"{other} for dot_product (--set model.block.scaled=false is use_scale=False{hotter})"
    )
    return Assumption(text, ("model.block",), required=True)


def _find_classes(meta: Mapping[str, Any]) -> tuple[Any, Any]:
    own = meta.get("dataset_meta")
    said = own if isinstance(own, Mapping) else meta
    return (
        next((said[key] for key in ("CLASSES", "classes") if key in said), None),
        next((said[key] for key in ("PALETTE", "palette") if key in said), None),
    )
