"""Converter of detectors of the authors' code, a fork of mmdetection 1.0.

Differences from ours, and their conversion:

- Norms are InPlaceABN's, whose scale is |weight| + 1e-5: that number becomes our weight. Since InPlaceABN 1.1,
  PyTorch's norms have the same tensors; if a weight is negative, the configuration must tell which kind they are.
- Their boxes end at the last pixel, x2, and are x2 - x1 + 1 wide; ours end at the edge of that pixel, x2 + 1. With
  this shift, box coding, RoIAlign, level assignment and overlaps are the same.
- Their anchors are centred on a cell, ours on its corner. Sides are 8 cells times sqrt(1 / ratio) and sqrt(ratio), so
  half a cell is the same share of the side on every level, and is added to the biases of the offsets.
- The background class is 0 in both; thresholds, levels, colours and strides are the same too.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dnlnet.backbones.pixels import CAFFE_MEAN, MEAN, Pixels
from dnlnet.conversion.detection.coco_classes import COCO_CLASSES
from dnlnet.conversion.detection.mmdet_blocks import PRESET, ForeignBlock, block_options, find_blocks
from dnlnet.conversion.family import Assumption, Converted, Family, ForeignCheckpoint
from dnlnet.conversion.mm_config import MMConfig, agreed_pixels, require_known
from dnlnet.conversion.names import State, flatten_convolutions, number_classes, rename_tensors, size
from dnlnet.conversion.resnets import find_resnet
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.detection.network import PLACEMENTS, chosen_blocks
from dnlnet.detection.recipe import DetectionRecipe
from dnlnet.detection.recipes import detection_recipes
from dnlnet.detection.schema import InstanceData
from dnlnet.errors import shown
from dnlnet.recipes.model import pixel_fields

_ABN_EPS = 1e-5
_RATIOS, _ANCHOR_CELLS = (0.5, 1.0, 2.0), 8  # of anchors: height by width, and side by stride
_DEEPEST = 23

# Their names and ours; names of blocks depend on their places.
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
    "anchors were centred on cells: half a cell is added to the biases of the proposals' offsets, which leaves a "
    "difference below 0.1 pixel",
    "if a padded side is not a multiple of 64, torchvision spaces the coarsest anchors by side // cells: by 61 "
    "instead of 64 pixels for 800, so that those of the last row are 36 pixels off (of 512)",
    "boxes are scaled back to the original image by their edges, not by their last pixels: if the image was enlarged "
    "s times, right and lower edges differ by 1 - 1/s of its pixels, which is 0.4 for 480 to 800",
    "boxes narrower than a cell (4 pixels) are widened to one before their features are read; masks are pasted as in "
    "torchvision, which moves their outlines by up to a pixel",
)


def matches(state: State) -> bool:
    """Return whether the names are those of Mask R-CNN in mmdetection 1.0; later heads begin with `roi_head.`.

    >>> matches({})
    False
    """
    return {"rpn_head.rpn_cls.weight", "bbox_head.fc_cls.weight", "mask_head.conv_logits.weight"} <= set(state)


def convert(checkpoint: ForeignCheckpoint) -> Converted:
    """Convert a checkpoint to a detector, with the matching recipe.

    Raises ValueError for blocks, placements and backbones that this package does not have.
    """
    config = MMConfig.of(checkpoint.meta)
    for part, known in _ONLY.items():
        require_known(config.part("model", part), part, known)
    block, places = find_blocks(checkpoint.state)
    options, notes = ({}, ()) if block is None else block_options(block, checkpoint.state, config)
    recipe = _recipe(checkpoint.state, block, places, options, config)
    classes, class_notes = _classes(checkpoint)
    names = {**_block_names(block, places), **_NAMES}
    state, unused = rename_tensors(checkpoint.state, names)
    for place in places:
        state = flatten_convolutions(state, _our_block(place))
    activated, norm_note = _has_activated_norms(checkpoint.state, config)
    if activated:
        state = _convert_norms(state)
    offsets = size(checkpoint.state, "rpn_head.rpn_reg.bias")
    if offsets != 4 * len(_RATIOS):
        raise ValueError(
            f"its RPN has {offsets} offsets at a position; expected four for each of {len(_RATIOS)} anchors"
        )
    state[_OFFSETS] = state[_OFFSETS] + _half_a_cell(state[_OFFSETS])
    said = (*config.notes, *class_notes, *notes, norm_note, *_test_notes(config), *_NOTES)
    assumed = () if _find_pixels(config) else (_ASSUMED_PIXELS,)
    return Converted(state, recipe, classes, said, assumed, unused, names)


FAMILY = Family(
    "mmdetection",
    "Mask R-CNN of the authors' detection code (mmdetection 1.0): baseline, NL, simplified NL (as gc) and DNL",
    matches,
    convert,
    ("backbone.", "neck.", "rpn_head.", "bbox_head.", "mask_head."),
    "config",
)

# Supported values by part and key.
_ONLY: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "backbone": {
        "num_stages": (4,),
        "strides": ((1, 2, 2, 2),),
        "dilations": ((1, 1, 1, 1),),
        "out_indices": ((0, 1, 2, 3),),
        "style": ("pytorch", "caffe"),
        **dict.fromkeys(("conv_cfg", "dcn", "gen_attention"), (None,)),
    },
    "neck": {"start_level": (0,), "num_outs": (5,), "add_extra_convs": (False,), "activation": (None,)},
    "rpn_head": {
        "anchor_scales": ((_ANCHOR_CELLS,),),
        "anchor_ratios": (_RATIOS,),
        "anchor_strides": ((4, 8, 16, 32, 64),),
        "target_means": ((0.0, 0.0, 0.0, 0.0),),
        "target_stds": ((1.0, 1.0, 1.0, 1.0),),
    },
    "bbox_head": {
        "target_means": ((0.0, 0.0, 0.0, 0.0),),
        "target_stds": ((0.1, 0.1, 0.2, 0.2),),
        "reg_class_agnostic": (False,),
    },
    "bbox_roi_extractor": {"roi_layer": ({"type": "RoIAlign", "out_size": 7, "sample_num": 2},)},
    "mask_roi_extractor": {"roi_layer": ({"type": "RoIAlign", "out_size": 14, "sample_num": 2},)},
}
# Test settings of our detector by their names.
_TEST: Mapping[str, Mapping[str, Any]] = {
    "rpn": {"nms_pre": 1000, "max_num": 1000, "nms_thr": 0.7, "min_bbox_size": 0},
    "rcnn": {"score_thr": 0.05, "nms": {"type": "nms", "iou_thr": 0.5}, "max_per_img": 100, "mask_thr_binary": 0.5},
}


def _test_notes(config: MMConfig) -> list[str]:
    return [
        f"its test_cfg.{part}.{key} is {shown(value)}; here it is {shown(ours)}"
        for part, usual in _TEST.items()
        for key, ours in usual.items()
        if (value := config.part("test_cfg", part).get(key, ours)) != ours
    ]


def _recipe(
    state: State, block: ForeignBlock | None, places: frozenset[str], options: Mapping[str, Any], config: MMConfig
) -> DetectionRecipe:
    """Return the recipe of this network, adapted to the checkpoint."""
    backbone = find_resnet(state)
    variant = None if block is None else block.variant
    placement = None if block is None else _placement(places, state)
    rows = [
        recipe
        for recipe in detection_recipes()
        if recipe.name.startswith("coco-r50-") and recipe.model.variant == variant
    ]
    recipe = next((row for row in rows if placement in (None, row.model.placement)), rows[0])
    changes = {
        "backbone": backbone,
        "stride_in_1x1": config.part("model", "backbone").get("style") == "caffe",
        **pixel_fields(_find_pixels(config) or Pixels()),
        "placement": placement or recipe.model.placement,
        "preset": PRESET,
        "block": dict(options),
    }
    model = type(recipe.model).model_validate({**recipe.model.model_dump(), **changes})
    if (model.backbone, model.placement) != (recipe.model.backbone, recipe.model.placement):  # not a row of the paper
        name = "-".join(["mmdet-coco", model.backbone, variant or "baseline", *([placement] if placement else [])])
        recipe = recipe.model_copy(update={"name": name, "paper": None})
    scales = [scale for scale in config.everywhere("img_scale") if isinstance(scale, tuple)]
    if scales and all(scale == scales[0] for scale in scales) and scales[0] != (1333, 800):
        recipe = recipe.model_copy(update={"data": _resize_data(recipe.data, scales[0]), "measured": None})
    return recipe if model == recipe.model else recipe.model_copy(update={"model": model, "measured": None})


_ASSUMED_PIXELS = Assumption(
    "pixels are assumed to be red first with ImageNet's mean and std, as in the authors' configurations; "
    "--set model.caffe_pixels=true sets Caffe's",
    ("model.pixels", "model.caffe_pixels"),
)


def _find_pixels(config: MMConfig) -> Pixels | None:
    """Return how pixels are normalised; None if the configuration does not say."""
    found = agreed_pixels([part for part in config.dicts() if "mean" in part and "std" in part], "img_norm_cfg")
    if found is not None and found.mean not in (MEAN, CAFFE_MEAN):  # images are padded with the mean
        raise ValueError(f"its pixels have the mean {shown(found.mean)}; supported: ImageNet's and Caffe's")
    return found


def _resize_data(data: InstanceData, scale: tuple[Any, ...]) -> InstanceData:
    """Return the data with another image size: limits of the longer and the shorter side."""
    if len(scale) != 2 or not all(isinstance(side, int) and side > 0 for side in scale):
        raise ValueError(f"its img_scale is {shown(scale)}; expected two whole numbers")
    return data.model_copy(update={"short_side": min(scale), "long_side": max(scale)})


def _placement(places: frozenset[str], state: State) -> str:
    for name, levels in PLACEMENTS.items():
        stages = {f"layer{level + 1}": which for level, which in levels.items()}
        counts = {s: sum(f"backbone.{s}.{n}.conv1.weight" in state for n in range(_DEEPEST)) for s in stages}
        if places == {f"{s}.{number}" for s, which in stages.items() for number in chosen_blocks(which, counts[s])}:
            return name
    raise ValueError(f"has blocks in {', '.join(sorted(places))}; known placements: {', '.join(PLACEMENTS)}")


def _classes(checkpoint: ForeignCheckpoint) -> tuple[Classes, tuple[str, ...]]:
    count = len(checkpoint.state["bbox_head.fc_cls.weight"]) - 1  # the first is the background
    said = checkpoint.meta.get("CLASSES")
    names = tuple(map(str, said)) if isinstance(said, list | tuple) else ()
    if names == tuple(COCO_CLASSES.names) or (not names and count == len(COCO_CLASSES)):
        return COCO_CLASSES, () if names else ("the 80 classes are assumed to be those of COCO",)
    if names and len(names) != count:
        raise ValueError(f"names {len(names)} classes but predicts {count}")
    if names:
        return Classes(names, spread_colours(count)), ()
    numbered, note = number_classes(count, first=1)
    return numbered, (note,)


def _has_activated_norms(state: State, config: MMConfig) -> tuple[bool, str]:
    """Return whether norms are InPlaceABN's, with the reason.

    Without a configuration, they are if they do not count batches, as in InPlaceABN before 1.1.
    """
    norms = [part for part in config.everywhere("norm_cfg") if isinstance(part, Mapping)]
    for norm in norms:
        require_known(norm, "norm_cfg", {"eps": (_ABN_EPS,), "activation": ("identity",)})
    kinds = {str(norm.get("type")) for norm in norms}
    abn = {kind for kind in kinds if "ABN" in kind}
    if abn and abn != kinds:
        raise ValueError(f"its norms are of several kinds ({', '.join(sorted(kinds))}); only one kind is supported")
    if abn or (not kinds and "backbone.bn1.num_batches_tracked" not in state):
        return True, "norms are InPlaceABN's, whose scale is |weight| + 1e-5, which is now the weight"
    if kinds:
        return False, f"norms are PyTorch's, according to its configuration ({', '.join(sorted(kinds))})"
    scales = {name.replace("running_var", "weight") for name in state if name.endswith("running_var")}
    negative = sum(int((tensor < 0).sum()) for name, tensor in state.items() if name in scales)
    if negative:
        raise ValueError(
            "its norms may be PyTorch's or those of InPlaceABN 1.1 and later, which differ for negative weights; "
            f"{negative} weights are negative: pass the training configuration, --config FILE (a file with the line "
            "norm_cfg = dict(type='SyncABN') or norm_cfg = dict(type='SyncBN') is enough)"
        )
    return (
        False,
        "norms are assumed to be PyTorch's; InPlaceABN's would differ by only 1e-5, because no weight is negative",
    )


def _block_names(block: ForeignBlock | None, places: frozenset[str]) -> dict[str, str]:
    return {
        f"backbone.{place}.{block.module}.{theirs}": f"{_our_block(place)}.{ours}"
        for place in places
        if block is not None
        for theirs, ours in block.layers.items()
    }


def _our_block(place: str) -> str:
    return f"backbone.body.body.{place}.act3.non_local"


def _convert_norms(state: State) -> dict[str, Tensor]:
    """Return the state with PyTorch's norms, whose weight is the scale."""
    scales = {name.replace("running_var", "weight") for name in state if name.endswith("running_var")}
    return {name: tensor.abs() + _ABN_EPS if name in scales else tensor for name, tensor in state.items()}


def _half_a_cell(like: Tensor) -> Tensor:
    """Return half a cell relative to each anchor's sides, in the order of the RPN's offsets x, y, w, h."""
    half = 0.5 / _ANCHOR_CELLS
    parts = [part for ratio in _RATIOS for part in (half * ratio**0.5, half / ratio**0.5, 0.0, 0.0)]
    return like.new_tensor(parts)
