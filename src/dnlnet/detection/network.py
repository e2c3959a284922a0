"""The paper's detector: torchvision's Mask R-CNN on a backbone with a feature pyramid and attention blocks."""

# B images of different sizes, C channels, h, w size of a map

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from dnlnet.attention import insert
from dnlnet.backbones import Backbone
from dnlnet.backbones.pixels import UNIT_MEAN, UNIT_STD
from dnlnet.backbones.split import Lower, find_layers, lower_names, upper_maps
from dnlnet.data.images import HeightWidth
from dnlnet.detection.heads import Heads, Proposals
from dnlnet.detection.schema import DetectorModel

LEVELS = ("0", "1", "2", "3")  # levels that boxes are pooled from, strides 4 to 32; a fifth has only anchors

# Residual blocks that get an attention block, by the number of their map from 0: c4 is 2, c5 is 3.
PLACEMENTS: dict[str, dict[int, Literal["one", "all"]]] = {
    "c4_one": {2: "one"},
    "c5_all": {3: "all"},
    "c4_one_c5_all": {2: "one", 3: "all"},
    "c4c5_all": {2: "all", 3: "all"},
}


def chosen_blocks(which: Literal["one", "all"], count: int) -> list[int]:
    """Return the numbers of the residual blocks of a stage that get a block; `one` is the last but one.

    >>> chosen_blocks("one", 6), chosen_blocks("all", 3)
    ([4], [0, 1, 2])
    """
    return list(range(count)) if which == "all" else [max(0, count - 2)]


class ImageFeatures(NamedTuple):
    """Features of an image below the first block, which replace the image as input of a detector."""

    maps: list[Tensor]  # (C, h, w) from fine to coarse; see `Lower`
    size: HeightWidth  # of the image, without padding


class Detector(GeneralizedRCNN):  # type: ignore[misc]  # torchvision has no types
    """Detector of objects: boxes, classes and masks.

    It takes images in 0..1, which it does not resize, or their features below the first block. Batch norms are where
    the authors' code has them: in the backbone, the pyramid, the box head (four convolutions, one linear layer) and
    the mask head. The paper only says that they are synchronised.

    Args:
        backbone: ResNet or MobileNetV2 of output stride 32.
        classes: Number of classes, without the background.
        model: Blocks and their places, widths, boxes, proposals and anchors.

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
                f"a detector needs a ResNet or mobilenetv2 of output stride 32, got {backbone.name} of "
                f"{backbone.strides}"
            )
        place = find_places(backbone, model.placement)[0]
        insert_blocks(backbone, model)
        width = model.width
        # Before the heads, because the order decides the initial weights of a seed.
        pyramid = _WithPyramid(backbone, width, place)
        heads = Heads(
            model.boxes,
            model.box_beta,
            box_roi_pool=_pool(7, model.anchor),
            box_head=FastRCNNConvFCHead(
                (width, 7, 7), [width] * model.box_convolutions, [model.box_width], norm_layer=nn.BatchNorm2d
            ),
            box_predictor=FastRCNNPredictor(model.box_width, classes + 1),
            mask_roi_pool=_pool(14, model.anchor),
            mask_head=MaskRCNNHeads(width, [width] * model.mask_convolutions, 1, norm_layer=nn.BatchNorm2d),
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
        if model.frozen:
            for name in lower_names(backbone, place):
                backbone.get_submodule(name).requires_grad_(False)

    def lower(self) -> Lower:
        """Return the layers below the first block, or below its place in the baseline."""
        return Lower(self.backbone.body, self.backbone.place)

    def forward(
        self, images: Sequence[Tensor] | Sequence[ImageFeatures], targets: Sequence[dict[str, Tensor]] | None = None
    ) -> Any:
        """Return the losses in training, or the objects of each image, for images in 0..1 or features."""
        if not isinstance(images[0], ImageFeatures):
            return super().forward(list(images), targets)
        batch, maps = join_features(images)  # type: ignore[arg-type]
        features = self.backbone(maps)
        proposals, proposal_losses = self.rpn(batch, features, targets)
        found, losses = self.roi_heads(features, proposals, batch.image_sizes, targets)
        return {**losses, **proposal_losses} if self.training else found

    @torch.no_grad()
    def detect(
        self,
        images: Sequence[Tensor] | Sequence[ImageFeatures],
        sizes: Sequence[tuple[int, int]],
        threshold: float = 0.0,
    ) -> list[dict[str, Tensor]]:
        """Return boxes (n, 4), labels 1..K, scores and masks (n, 1, H, W) in 0..1 of each image, at these sizes.

        Objects below the threshold are dropped before their masks are resized, which saves memory.
        """
        if isinstance(images[0], ImageFeatures):
            batch, maps = join_features(images)  # type: ignore[arg-type]
            features = self.backbone(maps)
        else:
            batch, _ = self.transform(list(images))
            features = self.backbone(batch.tensors)
        proposals, _ = self.rpn(batch, features)
        found, _ = self.roi_heads(features, proposals, batch.image_sizes)
        found = [{name: value[one["scores"] >= threshold] for name, value in one.items()} for one in found]
        results: list[dict[str, Tensor]] = self.transform.postprocess(found, batch.image_sizes, list(sizes))
        return results


def join_features(images: Sequence[ImageFeatures]) -> tuple[ImageList, list[Tensor]]:
    """Return a batch with the sizes of the images, and their maps (B, C, h, w), padded with zeros to one size.

    >>> small, large = (ImageFeatures([torch.rand(2, h, h)], (4 * h, 4 * h)) for h in (8, 16))
    >>> batch, maps = join_features([small, large])
    >>> batch.image_sizes, maps[0].shape
    ([(32, 32), (64, 64)], torch.Size([2, 2, 16, 16]))
    """
    joined = []
    for same in zip(*(image.maps for image in images), strict=True):
        height, width = (max(x.shape[axis] for x in same) for axis in (1, 2))
        joined.append(torch.stack([F.pad(x, (0, width - x.shape[2], 0, height - x.shape[1])) for x in same]).float())
    height, width = (4 * length for length in joined[0].shape[-2:])  # the finest map has stride 4
    pixels = joined[0].new_empty(1).expand(len(images), 3, height, width)  # only its shape is used
    return ImageList(pixels, [image.size for image in images]), joined


def find_places(backbone: Backbone, placement: str) -> list[str]:
    """Return the names of the residual blocks of a placement.

    >>> find_places(Backbone("mobilenetv2", 32), "c4_one")
    ['body.blocks.4.1']
    """
    layers = find_layers(backbone)
    places = []
    for level, which in PLACEMENTS[placement].items():
        names = [layer.name for layer in layers if layer.level == level]
        places += [names[number] for number in chosen_blocks(which, len(names))]
    return places


def insert_blocks(backbone: Backbone, model: DetectorModel) -> list[str]:
    """Insert attention blocks into a backbone and return the names of their residual blocks.

    A block comes before the last activation of its residual block, if that has one after the addition.

    >>> insert_blocks(Backbone("resnet50", 32), DetectorModel(variant="dnl"))
    ['body.layer3.4']
    """
    if model.variant is None:
        return []
    places = find_places(backbone, model.placement)
    activations = [_last_activation(backbone, place) for place in places]
    after = model.after_activation or None in activations  # a linear bottleneck has none
    layers = places if after else [f"{place}.{name}" for place, name in zip(places, activations, strict=True)]
    insert(backbone, dict.fromkeys(layers, model.variant), before=not after, preset=model.preset, **model.block)
    return places


def _last_activation(backbone: Backbone, place: str) -> str | None:
    """Return the name of the activation after the addition in a residual block, or None if it has none."""
    names = [name for name, _ in backbone.get_submodule(place).named_children() if name.startswith("act")]
    return max(names, default=None)


def _pool(size: int, anchor: int) -> MultiScaleRoIAlign:
    """Pool a box from the level whose anchors are about its size; 224 pixels for anchors from 32."""
    return MultiScaleRoIAlign(list(LEVELS), size, sampling_ratio=2, canonical_scale=7 * anchor)


class _WithPyramid(nn.Module):
    """Backbone with a feature pyramid: its four maps at one width, and a coarser fifth one."""

    def __init__(self, backbone: Backbone, width: int, place: str) -> None:
        super().__init__()
        self.body, self.place, self.out_channels = backbone, place, width
        self.pyramid = FeaturePyramidNetwork(
            list(backbone.channels), width, LastLevelMaxPool(), norm_layer=nn.BatchNorm2d
        )

    def forward(self, images: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the feature maps by level, from fine to coarse, of images or of the maps below `place`."""
        found = self.body(images) if isinstance(images, Tensor) else upper_maps(self.body, self.place, images)
        maps: dict[str, Tensor] = self.pyramid({str(level): x for level, x in enumerate(found)})
        return maps


class _WithoutResizing(GeneralizedRCNNTransform):  # type: ignore[misc]
    """Transform that normalises images and pads them to a batch, without resizing."""

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        """Return the image unchanged."""
        return image, target
