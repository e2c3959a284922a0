"""Detectors of the authors' detection code, a fork of mmdetection 1.0, as detectors of this package.

What differs there, and what becomes of it:

- Norms are InPlaceABN's, whose scale is |weight| + 1e-5: that number becomes our weight.
- A box ends with its last pixel, x2, so that it is x2 - x1 + 1 wide; ours ends with the edge of that pixel, x2 + 1.
  In these terms box coding, RoIAlign, the choice of the level and overlaps are the same in both.
- Anchors are around the centre of a cell, ours around its corner. Their sides are 8 cells times sqrt(1 / ratio) and
  sqrt(ratio), so half a cell is the same part of the side on every level, and goes into the biases of the offsets.
- Classes and masks have the background at 0, as ours have; thresholds, levels, colours and strides are the same too.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dnlnet.convert.coco_classes import COCO_CLASSES
from dnlnet.convert.family import Checkpoint, Converted, Family
from dnlnet.convert.known_classes import numbered
from dnlnet.convert.mmdet_blocks import PRESET, Block, Config, block_options, find_blocks
from dnlnet.convert.names import PLAIN_STEM, State, as_linear, find_resnet, renamed, size
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.models.detector import PLACEMENTS
from dnlnet.recipes import RECIPES
from dnlnet.recipes.schema import DetectionRecipe

SOURCE = "Mask R-CNN of the authors' detection code (mmdetection 1.0): baseline, NL, simplified NL (as gc) and DNL"
_ABN_EPS = 1e-5
_RATIOS, _ANCHOR_CELLS = (0.5, 1.0, 2.0), 8  # of anchors: height by width, and side by stride
_DEEPEST = 23
_BACKBONES: Mapping[tuple[str, tuple[int, ...]], str] = {
    (PLAIN_STEM, (3, 4, 6, 3)): "resnet50",
    (PLAIN_STEM, (3, 4, 23, 3)): "resnet101",
}

# Their names and ours; those of blocks come with their places.
_CONV_AND_NORM = {"conv": 0, "bn": 1}
_NAMES = {
    **{f"backbone.{part}": f"backbone.body.body.{part}" for part in ("conv1", "bn1")},
    **{f"backbone.layer{stage}": f"backbone.body.body.layer{stage}" for stage in range(1, 5)},
    **{
        f"{theirs}.{number}.{part}": f"{ours}.{number}.{index}"
        for theirs, ours in {
            "neck.lateral_convs": "backbone.pyramid.inner_blocks",
            "neck.fpn_convs": "backbone.pyramid.layer_blocks",
            "bbox_head.shared_convs": "roi_heads.box_head",
            "mask_head.convs": "roi_heads.mask_head",
        }.items()
        for number in range(4)
        for part, index in _CONV_AND_NORM.items()
    },
    "rpn_head.rpn_conv": "rpn.head.conv.0.0",
    "rpn_head.rpn_cls": "rpn.head.cls_logits",
    "rpn_head.rpn_reg": "rpn.head.bbox_pred",
    "bbox_head.shared_fcs.0": "roi_heads.box_head.5",  # after four convolutions and the flattening
    "bbox_head.fc_cls": "roi_heads.box_predictor.cls_score",
    "bbox_head.fc_reg": "roi_heads.box_predictor.bbox_pred",
    "mask_head.upsample": "roi_heads.mask_predictor.conv5_mask",
    "mask_head.conv_logits": "roi_heads.mask_predictor.mask_fcn_logits",
}
_OFFSETS = "rpn.head.bbox_pred.bias"

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


def matches(state: State) -> bool:
    """Whether these are names of mmdetection 1.0's Mask R-CNN; later versions put `roi_head.` before the heads.

    >>> matches({})
    False
    """
    return {"rpn_head.rpn_cls.weight", "bbox_head.fc_cls.weight", "mask_head.conv_logits.weight"} <= set(state)


def convert(checkpoint: Checkpoint) -> Converted:
    """The detector of a checkpoint, with the recipe whose network it is.

    Raises ValueError for blocks, placements and backbones that this package has not.
    """
    config = Config.of(checkpoint.meta)
    block, places = find_blocks(checkpoint.state)
    options, notes = ({}, ()) if block is None else block_options(block, checkpoint.state, config)
    recipe = _recipe(checkpoint.state, block, places, options, config)
    classes, class_notes = _classes(checkpoint)
    state, unused = _renamed(checkpoint.state, block, places)
    if _has_activated_norms(checkpoint.state, config):
        state = _with_plain_norms(state)
        notes += ("norms are InPlaceABN's, whose scale is |weight| + 1e-5; that is the weight now",)
    size(state, _OFFSETS)  # an error if it is not there
    state[_OFFSETS] = state[_OFFSETS] + _half_a_cell(state[_OFFSETS])
    return Converted(state, recipe, classes, (*class_notes, *notes, *_NOTES), unused)


FAMILY = Family("mmdetection", SOURCE, matches, convert)


def _recipe(
    state: State, block: Block | None, places: frozenset[str], options: Mapping[str, Any], config: Config
) -> DetectionRecipe:
    """The recipe of this network, changed where the checkpoint differs from it."""
    backbone = find_resnet(state, "backbone.", PLAIN_STEM, _BACKBONES)
    variant = None if block is None else block.variant
    placement = None if block is None else _placement(places, state)
    rows = [
        recipe
        for recipe in RECIPES.values()
        if isinstance(recipe, DetectionRecipe)
        and recipe.name.startswith("coco-r50-")
        and recipe.model.variant == variant
    ]
    recipe = next((row for row in rows if placement in (None, row.model.placement)), rows[0])
    changes = {
        "backbone": backbone,
        "stride_in_1x1": "caffe" in config.values("style"),
        "caffe_pixels": False in config.values("to_rgb"),
        "placement": placement or recipe.model.placement,
        "preset": PRESET,
        "block": dict(options),
    }
    model = type(recipe.model).model_validate({**recipe.model.model_dump(), **changes})
    if (model.backbone, model.placement) != (recipe.model.backbone, recipe.model.placement):  # no row of the paper's
        name = "-".join(["mmdet-coco", model.backbone, variant or "baseline", *([placement] if placement else [])])
        recipe = recipe.model_copy(update={"name": name, "paper": None})
    return recipe if model == recipe.model else recipe.model_copy(update={"model": model, "measured": None})


def _placement(places: frozenset[str], state: State) -> str:
    for name, stages in PLACEMENTS.items():
        counts = {s: sum(f"backbone.{s}.{n}.conv1.weight" in state for n in range(_DEEPEST)) for s in stages}
        if places == {f"{stage}.{number % counts[stage]}" for stage, numbers in stages.items() for number in numbers}:
            return name
    raise ValueError(f"has blocks in {', '.join(sorted(places))}; known placements: {', '.join(PLACEMENTS)}")


def _classes(checkpoint: Checkpoint) -> tuple[Classes, tuple[str, ...]]:
    count = len(checkpoint.state["bbox_head.fc_cls.weight"]) - 1  # the first is the background
    names = tuple(map(str, checkpoint.meta.get("CLASSES") or ()))
    if names == tuple(COCO_CLASSES.names) or (not names and count == len(COCO_CLASSES)):
        return COCO_CLASSES, () if names else ("the 80 classes are assumed to be those of COCO",)
    if names and len(names) != count:
        raise ValueError(f"names {len(names)} classes but tells {count} apart")
    if names:
        return Classes(names, spread_colours(count)), ()
    numbers, note = numbered(count, first=1)
    return Classes(numbers, spread_colours(count)), (note,)


def _has_activated_norms(state: State, config: Config) -> bool:
    """Told by the configuration, or by the counts of batches, which norms of PyTorch have and InPlaceABN had not."""
    kinds = {str(kind) for kind in config.values("type") if str(kind).endswith(("BN", "GN"))}
    return any("ABN" in kind for kind in kinds) if kinds else "backbone.bn1.num_batches_tracked" not in state


def _renamed(state: State, block: Block | None, places: frozenset[str]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    layers = {} if block is None else {f"{block.module}.{theirs}": ours for theirs, ours in block.layers.items()}
    blocks = {
        f"backbone.{place}.{theirs}": f"{_our_block(place)}.{ours}"
        for place in places
        for theirs, ours in layers.items()
    }
    ours, unused = renamed(state, {**blocks, **_NAMES})
    for place in places:
        ours = as_linear(ours, _our_block(place))
    return ours, unused


def _our_block(place: str) -> str:
    return f"backbone.body.body.{place}.act3.non_local"


def _with_plain_norms(state: State) -> dict[str, Tensor]:
    """The state with norms as PyTorch has them, whose weight is the scale."""
    scales = {name.replace("running_var", "weight") for name in state if name.endswith("running_var")}
    return {name: tensor.abs() + _ABN_EPS if name in scales else tensor for name, tensor in state.items()}


def _half_a_cell(like: Tensor) -> Tensor:
    """Half a cell as a part of the width and height of each anchor, in the order of the RPN's offsets x, y, w, h."""
    half = 0.5 / _ANCHOR_CELLS
    parts = [part for ratio in _RATIOS for part in (half * ratio**0.5, half / ratio**0.5, 0.0, 0.0)]
    return like.new_tensor(parts)
