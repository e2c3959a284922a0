"""Torchvision's proposals and heads of Mask R-CNN, with the settings in which the authors' code differs.

All other thresholds and numbers are the same in both.
"""

# n anchors or boxes of an image

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_loss
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead


class Proposals(RegionProposalNetwork):  # type: ignore[misc]  # torchvision has no types
    """Region proposal network.

    Args:
        channels: Channels of the feature maps.
        anchors: Generator of the anchors.
        proposals: Proposals per image in testing; twice as many in training.
        border_anchors: Also train on anchors that cross the border of the image.
        min_overlap: Minimum IoU of an object with its best anchor for that anchor to be positive.
    """

    def __init__(
        self, channels: int, anchors: AnchorGenerator, proposals: int, border_anchors: bool, min_overlap: float
    ) -> None:
        super().__init__(
            anchors,
            RPNHead(channels, anchors.num_anchors_per_location()[0]),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=256,
            positive_fraction=0.5,
            pre_nms_top_n={"training": 2000, "testing": 1000},  # per level
            post_nms_top_n={"training": 2 * proposals, "testing": proposals},
            nms_thresh=0.7,
        )
        self.border_anchors, self.min_overlap = border_anchors, min_overlap

    def forward(self, images: ImageList, features: dict[str, Tensor], targets: Any = None) -> Any:
        """Return the proposals of each image and the losses, which are empty in testing."""
        if targets is not None:
            targets = [{**one, "size": size} for one, size in zip(targets, images.image_sizes, strict=True)]
        return super().forward(images, features, targets)

    def assign_targets_to_anchors(
        self, anchors: Sequence[Tensor], targets: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the label of each anchor (1 object, 0 background, -1 ignored) and the box of its object."""
        labels, boxes = [], []
        for image_anchors, target in zip(anchors, targets, strict=True):
            used = self._used(image_anchors, *target["size"])
            objects = target["boxes"]
            if len(objects) and self.min_overlap > 0:
                best = self.box_similarity(objects, image_anchors[used]).amax(dim=1)
                objects = objects[best >= self.min_overlap]
            (label,), (box,) = super().assign_targets_to_anchors([image_anchors[used]], [{"boxes": objects}])
            labels.append(label.new_full((len(image_anchors),), -1).masked_scatter(used, label))
            boxes.append(image_anchors.to(box.dtype).masked_scatter(used[:, None], box))
        return labels, boxes

    def _used(self, anchors: Tensor, height: int, width: int) -> Tensor:
        """Return which anchors to train on, (n,). An image that no anchor fits into keeps all of them."""
        if self.border_anchors:
            return torch.ones_like(anchors[:, 0], dtype=torch.bool)
        inside = ((anchors >= 0) & (anchors <= anchors.new_tensor([width, height] * 2))).all(dim=1)
        return inside | ~inside.any()


class Heads(RoIHeads):  # type: ignore[misc]
    """Heads for classes, offsets and masks of boxes.

    Args:
        boxes: Boxes per image to train on.
        box_beta: Beta of the smooth L1 loss of offsets d: d^2 / (2 beta) if |d| < beta, else |d| - beta / 2.
        **parts: Pools, heads and predictors.
    """

    def __init__(self, boxes: int, box_beta: float, **parts: Any) -> None:
        super().__init__(
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=boxes,
            positive_fraction=0.25,
            bbox_reg_weights=(10.0, 10.0, 5.0, 5.0),
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
            **parts,
        )
        self.box_beta = box_beta

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: Any = None,
    ) -> Any:
        """Return the objects of each image, or torchvision's losses in training, with `box_beta` instead of 1/9."""
        if not self.training:
            return super().forward(features, proposals, image_shapes, targets)
        boxes, matched, labels, offsets = self.select_training_samples(proposals, targets)
        logits, predicted = self.box_predictor(self.box_head(self.box_roi_pool(features, boxes, image_shapes)))
        all_labels = torch.cat(labels)
        positive = torch.where(all_labels > 0)[0]
        loss_box = F.smooth_l1_loss(
            predicted.unflatten(1, (-1, 4))[positive, all_labels[positive]],
            torch.cat(offsets)[positive],
            beta=self.box_beta,
            reduction="sum",
        )
        boxes = [box[label > 0] for box, label in zip(boxes, labels, strict=True)]
        matched = [number[label > 0] for number, label in zip(matched, labels, strict=True)]
        masks = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, image_shapes)))
        true_masks, true_labels = ([target[name] for target in targets] for name in ("masks", "labels"))
        return [], {
            "loss_classifier": F.cross_entropy(logits, all_labels),
            "loss_box_reg": loss_box / len(all_labels),
            "loss_mask": maskrcnn_loss(masks, boxes, true_masks, true_labels, matched),
        }
