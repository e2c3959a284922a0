"""mmsegmentation: its DNL, non-local and plain FCN heads on ResNets of output stride 8."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dnlnet.convert.family import Checkpoint, Converted, Family
from dnlnet.convert.known_classes import find_data
from dnlnet.convert.names import DEEP_STEM, PLAIN_STEM, State, as_linear, find_resnet, renamed, size
from dnlnet.recipes.schema import Data, Evaluation, Loss, Optim, Schedule, SegmentationRecipe, SegmentorModel

# Their names and ours.
_BACKBONE = {
    "backbone.stem.0": "backbone.body.conv1.0",
    "backbone.stem.1": "backbone.body.conv1.1",
    "backbone.stem.3": "backbone.body.conv1.3",
    "backbone.stem.4": "backbone.body.conv1.4",
    "backbone.stem.6": "backbone.body.conv1.6",
    "backbone.stem.7": "backbone.body.bn1",
    **{f"backbone.{part}": f"backbone.body.{part}" for part in ("conv1", "bn1")},
    **{f"backbone.layer{stage}": f"backbone.body.layer{stage}" for stage in range(1, 5)},
}
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
_NAMES = {
    **_BACKBONE,
    **_HEADS,
    **{f"decode_head.{kind}.{theirs}": ours for kind in _VARIANTS for theirs, ours in _BLOCK.items()},
}

_BACKBONES: Mapping[tuple[str, tuple[int, ...]], str] = {
    (DEEP_STEM, (3, 4, 6, 3)): "resnet50c",
    (DEEP_STEM, (3, 4, 23, 3)): "resnet101c",
    (PLAIN_STEM, (3, 4, 6, 3)): "resnet50",
    (PLAIN_STEM, (3, 4, 23, 3)): "resnet101",
}
_WINDOWED = (769, 769)  # crops of this size come with corners on corners, and are tested in windows
_STRIDE = (513, 513)


def matches(state: State) -> bool:
    """Whether a state dict has mmsegmentation's names of a head that joins its input."""
    return {"decode_head.conv_cat.conv.weight", "decode_head.conv_seg.weight"} <= set(state)


def convert(checkpoint: Checkpoint) -> Converted:
    """The model of a checkpoint; what its weights leave open is read from its configuration or its file's name."""
    theirs = checkpoint.state
    averaged = [name for name in theirs if name.startswith("ema_")]
    state, unused = renamed({name: x for name, x in theirs.items() if name not in averaged}, _NAMES)
    variant = next((ours for kind, ours in _VARIANTS.items() if f"decode_head.{kind}.g.conv.weight" in theirs), None)
    notes = [f"left out: an averaged copy of the weights, {len(averaged)} tensors"] if averaged else []
    facts = _facts(checkpoint)
    width = size(theirs, "decode_head.convs.0.conv.weight")
    has_auxiliary = "auxiliary_head.conv_seg.weight" in theirs
    data, classes, assumed = find_data(size(theirs, "decode_head.conv_seg.weight"), *_said_classes(checkpoint.meta))
    model = SegmentorModel(
        backbone=find_resnet(theirs, "backbone.", _stem(theirs), _BACKBONES),
        variant=variant,
        preset="mmseg",
        block={} if variant is None else _block(facts.config, state, width),
        width=width,
        auxiliary=has_auxiliary,
        auxiliary_width=size(theirs, "auxiliary_head.convs.0.conv.weight") if has_auxiliary else None,
        auxiliary_bias="auxiliary_head.convs.0.conv.bias" in theirs,
        align_corners=facts.align_corners,
    )
    notes += [assumed] if assumed else []
    return Converted(
        as_linear(state, "head.block"), _recipe(model, data, facts), classes, (*notes, *facts.notes), unused
    )


FAMILY = Family(
    "mmsegmentation", "DNLHead, NLHead and FCNHead on ResNet-50 or 101, output stride 8", matches, convert
)


@dataclass
class _Facts:
    """What the weights do not tell."""

    config: str
    crop: tuple[int, int] | None
    align_corners: bool
    window: tuple[int, int] | None
    stride: tuple[int, int] | None
    iterations: int
    notes: list[str] = field(default_factory=list)


def _facts(checkpoint: Checkpoint) -> _Facts:
    """From the configuration in the file, then from the file's name, then from what is most common there."""
    config = next((text for key in ("config", "cfg") if isinstance(text := checkpoint.meta.get(key), str)), "")
    name = checkpoint.path.name
    notes = []
    named = _pair(r"(?<!\d)(\d{3,4})x(\d{3,4})(?!\d)", name)
    crop = _pair(r"crop_size\s*=\s*\(?\s*(\d+)\s*,\s*(\d+)", config) or named
    corners = set(re.findall(r"align_corners\s*=\s*(True|False)", config))
    if len(corners) == 1:
        align_corners = corners == {"True"}
    elif crop is not None:
        align_corners = crop == _WINDOWED
        why = f"as their models for crops of {crop[0]} x {crop[1]} have it"
        notes.append(f"align_corners is {align_corners}, {why}; --set model.align_corners=... changes it")
    else:
        align_corners = False
        notes.append(
            "neither a configuration nor the file's name says what crops it was trained on: align_corners is assumed "
            "to be False and images to be looked at whole, as most of their models have it; "
            "--set model.align_corners=true --set evaluation.window=[769,769] --set evaluation.stride=[513,513] "
            "change it"
        )
    slides = re.search(
        r"mode\s*=\s*'slide'.*?crop_size\s*=\s*\((\d+),\s*(\d+)\).*?stride\s*=\s*\((\d+),\s*(\d+)\)",
        config,
        re.DOTALL,
    )
    window, stride = (_WINDOWED, _STRIDE) if crop == _WINDOWED else (None, None)
    if slides is not None:
        a, b, c, d = map(int, slides.groups())
        window, stride = (a, b), (c, d)
    elif re.search(r"mode\s*=\s*'whole'", config):
        window = stride = None
    rounds = re.search(r"(?:total_iters|max_iters)\s*=\s*(\d+)", config)
    thousands = re.search(r"(?<![\dx])(\d+)k(?![a-z])", name)
    iterations = int(rounds[1]) if rounds else 1000 * int(thousands[1]) if thousands else 40_000
    if rounds is None and thousands is None and "iter" not in checkpoint.meta:
        notes.append(f"how long it was trained is not known; {iterations} iterations are written down")
    return _Facts(config, crop, align_corners, window, stride, iterations, notes)


def _recipe(model: SegmentorModel, data: str, facts: _Facts) -> SegmentationRecipe:
    """What mmsegmentation trains such a model with, as far as this package has it too."""
    short_side = None if data == "cityscapes" else 512
    crop = facts.crop or ((512, 1024) if data == "cityscapes" else (512, 512))
    free = ("block.query", "block.key") if model.variant == "dnl" and facts.crop == _WINDOWED else ()
    return SegmentationRecipe(
        name=f"mmseg-{data}-{model.backbone}-{model.variant or 'baseline'}",
        model=model,
        data=Data(name=data, crop=crop, short_side=short_side, brightness=32),
        loss=Loss(auxiliary_weight=0.4),
        optim=Optim(lr=0.01, weight_decay=5e-4, no_decay=free),
        schedule=Schedule(iterations=facts.iterations, batch=8 if data == "cityscapes" else 16),
        evaluation=Evaluation(window=facts.window, stride=facts.stride, short_side=short_side),
    )


def _block(config: str, state: State, width: int) -> dict[str, Any]:
    """Where a block is not as the preset: widths as its tensors have them, logits as the configuration says."""
    mode = re.search(r"mode\s*=\s*'(gaussian|dot_product|concatenation)'", config)
    if mode is not None:
        raise ValueError(f"its block is of the mode {mode[1]}; this package has embedded_gaussian alone")
    options: dict[str, Any] = {}
    reduction = width // size(state, "head.block.value.weight")
    if reduction != 2:
        options |= {"embed_reduction": reduction, "value_reduction": reduction}
    temperature = re.search(r"temperature\s*=\s*([\d.]+)", config)
    if temperature is not None and "head.block.saliency.weight" in state and float(temperature[1]) != 0.05:
        options["temperature"] = float(temperature[1])
    if re.search(r"use_scale\s*=\s*False", config):
        options["scaled"] = False
    return options


def _said_classes(meta: Mapping[str, Any]) -> tuple[Any, Any]:
    said = meta.get("dataset_meta") if isinstance(meta.get("dataset_meta"), Mapping) else meta
    assert isinstance(said, Mapping)
    return (
        next((said[key] for key in ("CLASSES", "classes") if key in said), None),
        next((said[key] for key in ("PALETTE", "palette") if key in said), None),
    )


def _stem(state: State) -> str:
    return DEEP_STEM if "backbone.stem.0.weight" in state else PLAIN_STEM


def _pair(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return None if found is None else (int(found[1]), int(found[2]))
