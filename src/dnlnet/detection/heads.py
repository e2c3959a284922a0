"""Torchvision's proposals and heads of Mask R-CNN, with settings for what they learn from.

The thresholds and numbers are the same in torchvision and in the authors' detection code, except for the settings.
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
    """Boxes that may hold an object.

    Args:
        channels: of the feature maps.
        anchors: the boxes that offsets are added to.
        proposals: per image, in testing; twice as many in training.
        border_anchors: learn from anchors that cross the border of the image, too.
        min_overlap: objects that overlap less than this with every anchor have no positive one.
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
        """Proposals of each image and, in training, the losses."""
        if targets is not None:
            targets = [{**one, "size": size} for one, size in zip(targets, images.image_sizes, strict=True)]
        return super().forward(images, features, targets)

    def assign_targets_to_anchors(
        self, anchors: Sequence[Tensor], targets: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return each anchor's label, 1 for an object, 0 for background and -1 to ignore it, and its object's box."""
        labels, boxes = [], []
        for every, target in zip(anchors, targets, strict=True):
            learnt = self._learnt(every, *target["size"])
            objects = target["boxes"]
            if len(objects) and self.min_overlap > 0:
                best = self.box_similarity(objects, every[learnt]).amax(dim=1)
                objects = objects[best >= self.min_overlap]
            (label,), (box,) = super().assign_targets_to_anchors([every[learnt]], [{"boxes": objects}])
            labels.append(label.new_full((len(every),), -1).masked_scatter(learnt, label))
            boxes.append(every.to(box.dtype).masked_scatter(learnt[:, None], box))
        return labels, boxes

    def _learnt(self, anchors: Tensor, height: int, width: int) -> Tensor:
        """Return which anchors to learn from, (n,). An image that no anchor fits into keeps all of them."""
        if self.border_anchors:
            return torch.ones_like(anchors[:, 0], dtype=torch.bool)
        inside = ((anchors >= 0) & (anchors <= anchors.new_tensor([width, height] * 2))).all(dim=1)
        return inside | ~inside.any()


class Heads(RoIHeads):  # type: ignore[misc]
    """Classes, offsets and masks of boxes.

    Args:
        boxes: per image, to learn from.
        box_beta: of the smooth L1 loss of the offsets d: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.
        **parts: pools, heads and predictors.
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
        """Objects of each image or, in training, the losses: torchvision's, which has a fixed beta of 1/9."""
        if not self.training:
            return super().forward(features, proposals, image_shapes, targets)
        boxes, matched, labels, offsets = self.select_training_samples(proposals, targets)
        logits, found = self.box_predictor(self.box_head(self.box_roi_pool(features, boxes, image_shapes)))
        label = torch.cat(labels)
        positive = torch.where(label > 0)[0]
        loss_box = F.smooth_l1_loss(
            found.unflatten(1, (-1, 4))[positive, label[positive]],
            torch.cat(offsets)[positive],
            beta=self.box_beta,
            reduction="sum",
        )
        boxes = [box[of > 0] for box, of in zip(boxes, labels, strict=True)]
        matched = [number[of > 0] for number, of in zip(matched, labels, strict=True)]
        masks = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, image_shapes)))
        true_masks, true_labels = ([target[name] for target in targets] for name in ("masks", "labels"))
        return [], {
            "loss_classifier": F.cross_entropy(logits, label),
            "loss_box_reg": loss_box / len(label),
            "loss_mask": maskrcnn_loss(masks, boxes, true_masks, true_labels, matched),
        }
