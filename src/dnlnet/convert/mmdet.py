"""Detectors of the authors' detection code, a fork of mmdetection 1.0, as detectors of this package.

What differs there, and what becomes of it:

- Norms are InPlaceABN's, whose scale is |weight| + 1e-5: that number becomes our weight.
- A box ends with its last pixel, x2, so that it is x2 - x1 + 1 wide; ours ends with the edge of that pixel, x2 + 1.
  In these terms box coding, RoIAlign, the choice of the level and overlaps are the same in both.
- Anchors are around the centre of a cell, ours around its corner. Their sides are 8 cells times sqrt(1 / ratio) and
  sqrt(ratio), so half a cell is the same part of the side on every level, and goes into the biases of the offsets.
- Classes and masks have the background at 0, as ours have; thresholds, levels, colours and strides are the same too.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dnlnet.convert.coco_classes import COCO_CLASSES
from dnlnet.convert.family import Checkpoint, Converted, Family
from dnlnet.convert.mmdet_blocks import BLOCK, PRESET, Block, Config, block_options, find_blocks
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.models.detector import PLACEMENTS
from dnlnet.recipes import RECIPES
from dnlnet.recipes.build_detection import build_model
from dnlnet.recipes.schema import DetectionRecipe

SOURCE = "Mask R-CNN of the authors' detection code (mmdetection 1.0): baseline, NL, simplified NL (as gc) and DNL"
_ABN_EPS = 1e-5
_RATIOS, _ANCHOR_CELLS = (0.5, 1.0, 2.0), 8  # of anchors: height by width, and side by stride
_DEPTHS = {(3, 4, 6, 3): "resnet50", (3, 4, 23, 3): "resnet101"}

_TENSORS = r"(weight|bias|running_mean|running_var|num_batches_tracked)"
_NAMES: Mapping[str, str] = {
    r"backbone\.((?:layer\d\.\d+\.)?(?:conv\d|bn\d|downsample\.\d))\.": r"backbone.body.body.\1.",
    r"neck\.lateral_convs\.(\d)\.conv\.": r"backbone.pyramid.inner_blocks.\1.0.",
    r"neck\.lateral_convs\.(\d)\.bn\.": r"backbone.pyramid.inner_blocks.\1.1.",
    r"neck\.fpn_convs\.(\d)\.conv\.": r"backbone.pyramid.layer_blocks.\1.0.",
    r"neck\.fpn_convs\.(\d)\.bn\.": r"backbone.pyramid.layer_blocks.\1.1.",
    r"rpn_head\.rpn_conv\.": r"rpn.head.conv.0.0.",
    r"rpn_head\.rpn_cls\.": r"rpn.head.cls_logits.",
    r"rpn_head\.rpn_reg\.": r"rpn.head.bbox_pred.",
    r"bbox_head\.shared_convs\.(\d)\.conv\.": r"roi_heads.box_head.\1.0.",
    r"bbox_head\.shared_convs\.(\d)\.bn\.": r"roi_heads.box_head.\1.1.",
    r"bbox_head\.shared_fcs\.0\.": r"roi_heads.box_head.5.",  # 4 is the flattening
    r"bbox_head\.fc_cls\.": r"roi_heads.box_predictor.cls_score.",
    r"bbox_head\.fc_reg\.": r"roi_heads.box_predictor.bbox_pred.",
    r"mask_head\.convs\.(\d)\.conv\.": r"roi_heads.mask_head.\1.0.",
    r"mask_head\.convs\.(\d)\.bn\.": r"roi_heads.mask_head.\1.1.",
    r"mask_head\.upsample\.": r"roi_heads.mask_predictor.conv5_mask.",
    r"mask_head\.conv_logits\.": r"roi_heads.mask_predictor.mask_fcn_logits.",
}
_NOTES = (
    "anchors were around the centres of cells: half a cell went into the biases of the proposals' offsets, which "
    "leaves less than 0.1 pixel",
    "where a padded side is no multiple of 64, torchvision spaces the coarsest anchors by side // cells: by 61 and "
    "not 64 pixels for 800, so that those of the last row are 36 pixels off (of 512)",
    "boxes are brought to the size of the file by their edges, not by their last pixels: right and lower edges "
    "differ by 1 - 1/s pixel of the file for images enlarged s times, 0.4 for 480 to 800",
    "boxes narrower than a cell (4 pixels) are widened to one before their features are read; masks are pasted as "
    "torchvision does it, which moves their outlines by up to a pixel",
)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Whether these are names of mmdetection 1.0's Mask R-CNN; later versions put `roi_head.` before the heads.

    >>> matches({"rpn_head.rpn_cls.weight": torch.empty(0)})
    False
    """
    return {"rpn_head.rpn_cls.weight", "bbox_head.fc_cls.weight", "mask_head.conv_logits.weight"} <= set(state)


def convert(checkpoint: Checkpoint) -> Converted:
    """The detector of a checkpoint, with the recipe whose network it is.

    Raises ValueError for blocks, placements and backbones that this package has not.
    """
    config = Config.of(checkpoint.meta)
    if config.values("to_rgb") == {False}:
        raise ValueError(
            f"{checkpoint.path}: was trained on blue, green, red (to_rgb=False) with Caffe's means; only detectors "
            "trained on red, green, blue with ImageNet's means are converted"
        )
    classes, class_notes = _classes(checkpoint)
    activated = _has_activated_norms(checkpoint.state, config)
    try:
        block, places = find_blocks(checkpoint.state)
        options, notes = ({}, ()) if block is None else block_options(block, checkpoint.state, config)
        recipe = _recipe(checkpoint.state, block, places, options, config)
        state, unused = _renamed(checkpoint.state, block)
        state = _with_plain_norms(state, activated)
        _check(state, recipe, len(classes))
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from None
    offsets = state["rpn.head.bbox_pred.bias"]
    state["rpn.head.bbox_pred.bias"] = offsets + _half_a_cell(offsets)
    if activated:
        notes += ("norms are InPlaceABN's, whose scale is |weight| + 1e-5; that is the weight now",)
    return Converted(state, recipe, classes, (*class_notes, *notes, *_NOTES), unused)


FAMILY = Family("mmdet", SOURCE, matches, convert)


def _recipe(
    state: Mapping[str, Tensor],
    block: Block | None,
    places: frozenset[str],
    options: Mapping[str, Any],
    config: Config,
) -> DetectionRecipe:
    """The recipe of this network, changed where the checkpoint differs from it."""
    blocks = {place[1] for name in state if (place := re.match(r"backbone\.(layer\d\.\d+)\.conv1\.weight", name))}
    depth = Counter(place.partition(".")[0] for place in blocks)
    counts = tuple(depth[f"layer{stage}"] for stage in range(1, 5))
    if counts not in _DEPTHS:
        raise ValueError(f"its stages have {counts} residual blocks; known: {', '.join(map(str, _DEPTHS))}")
    variant = None if block is None else block.variant
    placement = None if block is None else _placement(places, depth)
    rows = [
        recipe
        for recipe in RECIPES.values()
        if isinstance(recipe, DetectionRecipe)
        and recipe.name.startswith("coco-r50-")
        and recipe.model.variant == variant
    ]
    recipe = next((row for row in rows if placement in (None, row.model.placement)), rows[0])
    changes = {
        "backbone": _DEPTHS[counts],
        "stride_in_1x1": "caffe" in config.values("style"),
        "placement": placement or recipe.model.placement,
        "preset": PRESET,
        "block": dict(options),
    }
    model = type(recipe.model).model_validate({**recipe.model.model_dump(), **changes})
    return recipe if model == recipe.model else recipe.model_copy(update={"model": model, "measured": None})


def _placement(places: frozenset[str], depth: Mapping[str, int]) -> str:
    for name, stages in PLACEMENTS.items():
        if places == {f"{stage}.{number % depth[stage]}" for stage, numbers in stages.items() for number in numbers}:
            return name
    raise ValueError(f"has blocks in {', '.join(sorted(places))}; known placements: {', '.join(PLACEMENTS)}")


def _classes(checkpoint: Checkpoint) -> tuple[Classes, tuple[str, ...]]:
    count = len(checkpoint.state["bbox_head.fc_cls.weight"]) - 1  # the first is the background
    names = tuple(map(str, checkpoint.meta.get("CLASSES") or ()))
    if names == tuple(COCO_CLASSES.names) or (not names and count == len(COCO_CLASSES)):
        return COCO_CLASSES, () if names else ("no class names in the file: its 80 classes are taken to be COCO's",)
    if names and len(names) != count:
        raise ValueError(f"{checkpoint.path}: names {len(names)} classes but scores {count}")
    note = () if names else (f"no class names in the file: its {count} classes are numbered",)
    names = names or tuple(f"class {number}" for number in range(1, count + 1))
    return Classes(names, spread_colours(count)), note


def _has_activated_norms(state: Mapping[str, Tensor], config: Config) -> bool:
    """Told by the configuration, or by the counts of batches, which norms of PyTorch have and InPlaceABN had not."""
    kinds = {str(kind) for kind in config.values("type") if str(kind).endswith(("BN", "GN"))}
    return any("ABN" in kind for kind in kinds) if kinds else "backbone.bn1.num_batches_tracked" not in state


def _renamed(state: Mapping[str, Tensor], block: Block | None) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    renamed, unused = {}, []
    for name, tensor in state.items():
        ours = _our_name(name, block)
        if ours is None:
            unused.append(name)
        else:
            renamed[ours] = tensor.flatten(1) if ".non_local." in ours and tensor.dim() == 4 else tensor
    return renamed, tuple(unused)


def _our_name(name: str, block: Block | None) -> str | None:
    parts = BLOCK.fullmatch(name)
    if parts and block is not None:
        layer, _, tensor = parts[3].rpartition(".") if parts[3] not in block.layers else (parts[3], "", "")
        return f"backbone.body.body.{parts[1]}.act3.non_local.{block.layers[layer]}{'.' if tensor else ''}{tensor}"
    for pattern, ours in _NAMES.items():
        if re.fullmatch(pattern + _TENSORS, name):
            return re.sub(pattern, ours, name)
    return None


def _with_plain_norms(state: Mapping[str, Tensor], activated: bool) -> dict[str, Tensor]:
    """The state with norms as PyTorch has them: a weight that is the scale, and a count of batches."""
    plain = dict(state)
    for name in state:
        norm, _, tensor = name.rpartition(".")
        if tensor == "running_var":
            if activated:
                plain[f"{norm}.weight"] = state[f"{norm}.weight"].abs() + _ABN_EPS
            plain.setdefault(f"{norm}.num_batches_tracked", torch.tensor(0))
    return plain


def _check(state: Mapping[str, Tensor], recipe: DetectionRecipe, classes: int) -> None:
    """Fail if the recipe's detector has tensors that are not there, or of other shapes."""
    with torch.device("meta"):
        wanted = build_model(recipe.model, classes, weights=False).state_dict()
    if missing := [name for name in wanted if name not in state]:
        raise ValueError(
            f"lacks {len(missing)} tensors of {recipe.name} ({', '.join(missing[:3])}); expected a Mask R-CNN with a "
            "box head of 4 convolutions and 1 linear layer, and norms in neck and heads"
        )
    for name, tensor in wanted.items():
        if state[name].shape != tensor.shape:
            raise ValueError(f"its {name} is {tuple(state[name].shape)} and not {tuple(tensor.shape)}")


def _half_a_cell(like: Tensor) -> Tensor:
    """Half a cell as a part of the width and height of each anchor, in the order of the RPN's offsets x, y, w, h."""
    half = 0.5 / _ANCHOR_CELLS
    parts = [part for ratio in _RATIOS for part in (half * ratio**0.5, half / ratio**0.5, 0.0, 0.0)]
    return like.new_tensor(parts)
