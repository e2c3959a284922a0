"""Ground truth of one image: classes and boundaries, resampled to the grid of an attention map."""

# H, W size of the labels; N queries, M keys, K classes

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.lens.measure import BOUNDARY_WIDTH

IGNORE = 255  # label of pixels without a class


@dataclass(frozen=True)
class GroundTruth:
    """Labels of one image at full resolution, and their boundaries."""

    labels: Tensor  # (H, W), IGNORE if unlabelled
    boundary: Tensor  # (H, W) bool
    classes: int

    @classmethod
    def of(cls, labels: Tensor, classes: int, width: int = BOUNDARY_WIDTH, void_edges: bool = False) -> "GroundTruth":
        """Return the ground truth of a label map; see `boundary_map`."""
        return cls(labels, boundary_map(labels, width, void_edges), classes)

    def padded(self, covered: Sequence[float]) -> "GroundTruth":
        """Return the ground truth of the image with unlabelled padding below and on the right.

        Args:
            covered: Share of the padded height and width that the image covers.
        """
        height, width = (round(length / share) for length, share in zip(self.labels.shape, covered, strict=True))
        margin = (0, width - self.labels.shape[1], 0, height - self.labels.shape[0])
        return GroundTruth(F.pad(self.labels, margin, value=IGNORE), F.pad(self.boundary, margin), self.classes)

    def query_classes(self, size: Sequence[int]) -> Tensor:
        """Return the most frequent class (N,) of each cell, or K if most of the cell is unlabelled."""
        return self._shares(size).argmax(dim=0).flatten()

    def regions(self, size: Sequence[int]) -> Tensor:
        """Return the share (M, K + 2) of each cell that each class, unlabelled pixels and boundaries cover."""
        boundary = _cell_shares(self.boundary, size)
        return torch.cat([self._shares(size), boundary[None]]).flatten(1).T.contiguous()

    def _shares(self, size: Sequence[int]) -> Tensor:
        void = (self.labels < 0) | (self.labels >= self.classes)
        masks = [*(self.labels == k for k in range(self.classes)), void]
        return torch.stack([_cell_shares(mask, size) for mask in masks])


def boundary_map(labels: Tensor, width: int = BOUNDARY_WIDTH, void_edges: bool = False) -> Tensor:
    """Return (H, W) bool: the pixels closer than `width` to a contour between two classes.

    The pixels on both sides of a contour have distance 0, so `width` pixels on each side are marked.

    Args:
        labels: (H, W).
        width: Distance in pixels of the label map.
        void_edges: Also count contours between labelled and unlabelled pixels.

    >>> boundary_map(torch.tensor([[0, 0, 0, 1, 1, 1]]), width=2).int()
    tensor([[0, 1, 1, 1, 1, 0]], dtype=torch.int32)
    """
    if width < 1:
        raise ValueError(f"the boundary width must be at least 1 pixel, got {width}")
    contour = torch.zeros_like(labels, dtype=torch.bool)
    for axis in (0, 1):
        count = labels.shape[axis] - 1
        first, second = labels.narrow(axis, 0, count), labels.narrow(axis, 1, count)
        differ = first != second
        if not void_edges:
            differ &= (first != IGNORE) & (second != IGNORE)
        contour.narrow(axis, 0, count).logical_or_(differ)
        contour.narrow(axis, 1, count).logical_or_(differ)
    # A disc is a stack of horizontal lines: spread the contour along each, then move it up or down.
    near = torch.zeros_like(contour)
    height = contour.shape[0]
    for dy in range(min(width, height)):
        reach = isqrt(width**2 - dy**2 - 1)  # the largest dx with dx^2 + dy^2 < width^2
        line = F.max_pool1d(contour.float(), 2 * reach + 1, stride=1, padding=reach).bool()
        near[dy:] |= line[: height - dy]
        near[: height - dy] |= line[dy:]
    return near


def _cell_shares(mask: Tensor, size: Sequence[int]) -> Tensor:
    """Return the share of each grid cell that the mask covers."""
    height, width = size
    return F.adaptive_avg_pool2d(mask.float()[None], (height, width))[0]
