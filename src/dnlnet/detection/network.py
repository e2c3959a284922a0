"""The paper's detector: torchvision's Mask R-CNN on a ResNet with a feature pyramid and attention blocks."""

# B images of different sizes, C channels

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from dnlnet.attention import insert
from dnlnet.backbones import Backbone
from dnlnet.backbones.pixels import UNIT_MEAN, UNIT_STD
from dnlnet.detection.heads import Heads, Proposals
from dnlnet.detection.schema import DetectorModel

PYRAMID_CHANNELS = 256
LEVELS = ("0", "1", "2", "3")  # levels that boxes are pooled from, strides 4 to 32; a fifth has only anchors

# Residual blocks that get an attention block, by stage; c4 is layer3, c5 is layer4.
PLACEMENTS: dict[str, dict[str, tuple[int, ...]]] = {
    "c4_one": {"layer3": (-2,)},  # before the last residual block
    "c5_all": {"layer4": (0, 1, 2)},
    "c4_one_c5_all": {"layer3": (-2,), "layer4": (0, 1, 2)},
    "c4c5_all": {"layer3": (0, 1, 2, 3, 4, 5), "layer4": (0, 1, 2)},
}


class Detector(GeneralizedRCNN):  # type: ignore[misc]  # torchvision has no types
    """Detector of objects: boxes, classes and masks.

    It takes images in 0..1 and does not resize them. Batch norms are where the authors' code has them: in the
    backbone, the pyramid, the box head (four convolutions, one linear layer) and the mask head. The paper only says
    that they are synchronised.

    Args:
        backbone: ResNet of output stride 32.
        classes: Number of classes, without the background.
        model: Blocks and their places, boxes, proposals and anchors.

    >>> detector = Detector(Backbone("resnet50", 32), 3, DetectorModel(variant="dnl")).eval()
    >>> found = detector.detect([torch.rand(3, 64, 96)], sizes=[(128, 192)])
    >>> sorted(found[0]), found[0]["masks"].shape[-2:]
    (['boxes', 'labels', 'masks', 'scores'], torch.Size([128, 192]))
    """

    def __init__(self, backbone: Backbone, classes: int, model: DetectorModel) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if backbone.parallel or backbone.strides[-1] != 32:
            raise ValueError(
                f"a detector needs a ResNet of output stride 32, got {backbone.name} of {backbone.strides}"
            )
        insert_blocks(backbone, model)
        width = PYRAMID_CHANNELS
        pyramid = _WithPyramid(backbone)  # before the heads: the order decides the initial weights of a seed
        heads = Heads(
            model.boxes,
            model.box_beta,
            box_roi_pool=_pool(7, model.anchor),
            box_head=FastRCNNConvFCHead((width, 7, 7), [width] * 4, [1024], norm_layer=nn.BatchNorm2d),
            box_predictor=FastRCNNPredictor(1024, classes + 1),
            mask_roi_pool=_pool(14, model.anchor),
            mask_head=MaskRCNNHeads(width, [width] * 4, 1, norm_layer=nn.BatchNorm2d),
            mask_predictor=MaskRCNNPredictor(width, width, classes + 1),
        )
        levels = len(LEVELS) + 1
        anchors = AnchorGenerator(
            tuple((model.anchor * 2**level,) for level in range(levels)), ((0.5, 1.0, 2.0),) * levels
        )
        super().__init__(
            pyramid,
            Proposals(width, anchors, model.proposals, model.border_anchors, model.min_overlap),
            heads,
            _WithoutResizing(800, 1333, list(UNIT_MEAN), list(UNIT_STD)),
        )

    @torch.no_grad()
    def detect(
        self, images: Sequence[Tensor], sizes: Sequence[tuple[int, int]], threshold: float = 0.0
    ) -> list[dict[str, Tensor]]:
        """Return boxes (n, 4), labels 1..K, scores and masks (n, 1, H, W) in 0..1 of each image, at these sizes.

        Objects below the threshold are dropped before their masks are resized, which saves memory.
        """
        batch, _ = self.transform(list(images))
        features = self.backbone(batch.tensors)
        proposals, _ = self.rpn(batch, features)
        found, _ = self.roi_heads(features, proposals, batch.image_sizes)
        found = [{name: value[one["scores"] >= threshold] for name, value in one.items()} for one in found]
        results: list[dict[str, Tensor]] = self.transform.postprocess(found, batch.image_sizes, list(sizes))
        return results


def insert_blocks(backbone: Backbone, model: DetectorModel) -> list[str]:
    """Insert attention blocks into a ResNet and return the names of their residual blocks.

    >>> insert_blocks(Backbone("resnet50", 32), DetectorModel(variant="dnl"))
    ['body.layer3.4']
    """
    if model.variant is None:
        return []
    places = [
        f"body.{stage}.{number % len(backbone.body[stage])}"
        for stage, numbers in PLACEMENTS[model.placement].items()
        for number in numbers
    ]
    after = model.after_activation
    layers = places if after else [f"{place}.{_last_activation(backbone, place)}" for place in places]
    insert(backbone, dict.fromkeys(layers, model.variant), before=not after, preset=model.preset, **model.block)
    return places


def _last_activation(backbone: Backbone, place: str) -> str:
    """Return the name of the activation after the addition in a residual block."""
    names = [name for name, _ in backbone.get_submodule(place).named_children() if name.startswith("act")]
    return max(names)


def _pool(size: int, anchor: int) -> MultiScaleRoIAlign:
    """Pool a box from the level whose anchors are about its size; 224 pixels for anchors from 32."""
    return MultiScaleRoIAlign(list(LEVELS), size, sampling_ratio=2, canonical_scale=7 * anchor)


class _WithPyramid(nn.Module):
    """Backbone with a feature pyramid: its four maps at one width, and a coarser fifth one."""

    out_channels = PYRAMID_CHANNELS

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.body = backbone
        self.pyramid = FeaturePyramidNetwork(
            list(backbone.channels), PYRAMID_CHANNELS, LastLevelMaxPool(), norm_layer=nn.BatchNorm2d
        )

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return the feature maps by level, from fine to coarse."""
        maps: dict[str, Tensor] = self.pyramid({str(level): x for level, x in enumerate(self.body(images))})
        return maps


class _WithoutResizing(GeneralizedRCNNTransform):  # type: ignore[misc]
    """Transform that normalises images and pads them to a batch, without resizing."""

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        """Return the image unchanged."""
        return image, target
