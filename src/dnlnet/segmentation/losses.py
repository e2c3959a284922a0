"""Segmentation losses: cross-entropy with ignored pixels and online hard example mining."""

# B batch, K classes, H, W size of the image

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.segmentation.network import SegmentorOutput
from dnlnet.segmentation.schema import Ohem


class SegmentationLoss(nn.Module):
    """Cross-entropy of the head, and of the auxiliary head if there is one.

    Args:
        class_weights: One weight per class, for the main and the auxiliary head.
        ohem: Selection of the main head's hard pixels. None keeps all pixels.
        auxiliary_weight: Weight of the auxiliary loss. Default: the paper's.
        ignore: Label of pixels that do not count. If no pixel counts, the loss and its gradients are 0.
        average: Function that averages a number over the processes that share a batch. The mean of their losses is
            then the mean over all pixels of the batch. Hard pixels are selected within one process.

    >>> loss = SegmentationLoss(ohem=Ohem(kept=4))
    >>> losses = loss(SegmentorOutput(torch.zeros(1, 2, 4, 4)), torch.zeros(1, 4, 4, dtype=torch.long))
    >>> {name: round(value.item(), 4) for name, value in losses.items()}
    {'main': 0.6931}
    """

    class_weights: Tensor | None

    def __init__(
        self,
        class_weights: Tensor | None = None,
        ohem: Ohem | None = None,
        auxiliary_weight: float = 0.5,
        ignore: int = 255,
        average: Callable[[Tensor], Tensor] = lambda number: number,
    ) -> None:
        super().__init__()
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.ohem, self.auxiliary_weight, self.ignore, self.average = ohem, auxiliary_weight, ignore, average

    def forward(self, output: SegmentorOutput, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss terms by name for labels (B, H, W). Training minimises their sum."""
        self._check(output.logits, labels)
        labels = labels.long()
        losses = {"main": self._cross_entropy(output.logits, labels, self.ohem)}
        if output.auxiliary is not None:
            losses["auxiliary"] = self.auxiliary_weight * self._cross_entropy(output.auxiliary, labels, None)
        return losses

    def _cross_entropy(self, logits: Tensor, labels: Tensor, ohem: Ohem | None) -> Tensor:
        """Return the weighted mean over all counted pixels, or the plain mean of the hard pixels' weighted losses."""
        losses = F.cross_entropy(logits, labels, ignore_index=self.ignore, reduction="none")
        counted = labels != self.ignore
        if ohem is not None:
            counted = hard_pixels(losses, counted, ohem)
        weights = counted.to(losses.dtype)
        if self.class_weights is not None:
            weights = weights * self.class_weights[labels.where(counted, 0)]
        total = self.average(weights.sum()) if ohem is None else counted.sum()
        # If no pixel counts, this is a sum of zeros divided by 1, with zero gradients.
        return (weights * losses).sum() / total.where(total > 0, 1)

    def _check(self, logits: Tensor, labels: Tensor) -> None:
        expected = (logits.shape[0], *logits.shape[2:])
        if tuple(labels.shape) != expected:
            shapes = f"expected {expected} for logits {tuple(logits.shape)}"
            raise ValueError(f"labels have the shape {tuple(labels.shape)}; {shapes}")
        if self.class_weights is not None and len(self.class_weights) != logits.shape[1]:
            raise ValueError(f"{len(self.class_weights)} class weights for logits of {logits.shape[1]} classes")


@torch.no_grad()
def hard_pixels(losses: Tensor, counted: Tensor, ohem: Ohem) -> Tensor:
    """Return a mask (B, H, W) of the hard pixels among the counted ones, as in the authors' release.

    The pixels of all images of this process's batch are ranked together by p = exp(-loss), the probability of the
    true class. A pixel is hard if p < max(threshold, p at rank kept * B). Ranks start at 0 and end at the last
    counted pixel. Selection finds the rank in time linear in the number of pixels.

    Args:
        losses: Cross-entropy of each pixel without class weights, (B, H, W).
        counted: Mask of pixels that are not ignored, (B, H, W).
        ohem: Threshold and number kept per image.

    >>> losses = -torch.tensor([[[0.1, 0.8, 0.9]]]).log()
    >>> hard_pixels(losses, torch.ones(1, 1, 3, dtype=torch.bool), Ohem(threshold=0.7, kept=2))
    tensor([[[ True,  True, False]]])
    """
    easiness = -losses.where(counted, -torch.inf)  # log p, or infinite for ignored pixels
    at_rank = easiness.flatten().kthvalue(min(ohem.kept * losses.shape[0], losses.numel() - 1) + 1).values
    easiest = -losses.where(counted, torch.inf).min()
    limit = at_rank.minimum(easiest).clamp(min=math.log(ohem.threshold))
    return ~(easiness >= limit) & counted  # a NaN loss counts as hard, so that it stays visible
