"""Feature maps of several backbone stages, brought to the grid of the finest one."""

# B batch, C channels, h, w size of the finest grid or of a window on it, i, j size of a coarser grid

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Features(NamedTuple):
    """Backbone features that replace images as the input of a head.

    For whole images, each map has its own size. For a window of the finest grid, each map holds the positions that
    the window needs, and `weights` interpolates the coarser maps to the window bilinearly.
    """

    maps: Sequence[Tensor]  # finest stage (B, C, h, w), other stages (B, C, i, j)
    weights: Sequence[Sequence[Tensor]] = ()  # windows only: (B, h, i) and (B, w, j) per stage after the first
    detail: Sequence[Tensor] = ()  # at most one map (B, C, r h, r w), r times finer than the grid


class Grid(NamedTuple):
    """Strides of the stages. The block sees the grid of the first stage, or with `detail` that of the second."""

    strides: tuple[int, ...]
    detail: bool = False

    @property
    def stride(self) -> int:
        """Stride of the grid."""
        return self.strides[int(self.detail)]

    def whole(self, maps: Sequence[Tensor]) -> Features:
        """Return the features of whole images."""
        return Features(tuple(maps[1:]), detail=(maps[0],)) if self.detail else Features(tuple(maps))

    def window(self, maps: Sequence[Tensor], corner: tuple[int, int], size: tuple[int, int]) -> Features:
        """Cut the part of each stage that a window of the grid needs.

        The shapes of the result depend only on the window's size.

        Args:
            maps: Map (C, i, j) of each stage, of one image.
            corner: Top and left of the window.
            size: Height and width of the window. Positions outside the image are zero.

        >>> cut = Grid((8, 16)).window([torch.rand(2, 9, 9), torch.rand(3, 5, 5)], (4, 1), (4, 4))
        >>> [tuple(x.shape) for x in cut.maps], [tuple(x.shape) for x in cut.weights[0]]
        ([(2, 4, 4), (3, 5, 5)], [(4, 5), (4, 5)])
        """
        if self.detail:
            ratio = self.stride // self.strides[0]
            fine = _padded(maps[0], (corner[0] * ratio, corner[1] * ratio), (size[0] * ratio, size[1] * ratio))
            return Grid(self.strides[1:]).window(maps[1:], corner, size)._replace(detail=(fine,))
        height, width = maps[0].shape[-2:]
        cut, weights = [_padded(maps[0], corner, size)], []
        for x, stride in zip(maps[1:], self.strides[1:], strict=True):
            extent = (_extent(size[0], stride / self.stride), _extent(size[1], stride / self.stride))
            top, down = _weights(x.shape[-2], height, corner[0], size[0], extent[0])
            left, across = _weights(x.shape[-1], width, corner[1], size[1], extent[1])
            cut.append(_padded(x, (top, left), extent))
            weights.append((down, across))
        return Features(tuple(cut), tuple(weights))


def join_stages(features: Features) -> Tensor:
    """Concatenate all stages on the grid of the first, (B, sum of C, h, w).

    >>> join_stages(Features([torch.rand(1, 2, 6, 8), torch.rand(1, 3, 3, 4)])).shape
    torch.Size([1, 5, 6, 8])
    """
    first, *others = features.maps
    if features.weights:
        brought = [_weighted(x, *weights) for x, weights in zip(others, features.weights, strict=True)]
    else:
        brought = [F.interpolate(x, first.shape[-2:], mode="bilinear", align_corners=False) for x in others]
    return torch.cat([first, *brought], dim=1)


def _weighted(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Return y_hw = sum_ij down_hi across_wj x_ij, computed as one product with channels last in memory."""
    weights = (down[:, :, None, :, None] * across[:, None, :, None, :]).flatten(3).flatten(1, 2)  # (B, hw, ij)
    joined: Tensor = weights.to(x.dtype) @ x.permute(0, 2, 3, 1).flatten(1, 2)
    grid: Tensor = joined.unflatten(1, (down.shape[1], across.shape[1]))
    return grid.permute(0, 3, 1, 2)


def resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Interpolate bilinearly with two matrix products.

    On a CPU, their backward pass takes a fraction of the time of `F.interpolate`.

    >>> x = torch.rand(1, 2, 5, 7)
    >>> torch.allclose(resize(x, (40, 56)), F.interpolate(x, (40, 56), mode="bilinear"), atol=1e-6)
    True
    """
    down, across = (linear_weights(*lengths).to(x) for lengths in zip(x.shape[-2:], size, strict=True))
    return down @ (x @ across.mT)


def cropped(x: Tensor, height: int, width: int) -> Tensor:
    """Return the upper left part of a map: a view, or a copy in exported PyTorch programs.

    The size of a view decides if it is contiguous. The exporter would take the answer from its example input, and the
    program would then reject sizes with another answer. ONNX has neither views nor the copying operator.

    >>> cropped(torch.arange(12).view(1, 1, 3, 4), 2, 2).tolist()
    [[[[0, 1], [4, 5]]]]
    """
    if torch.compiler.is_exporting() and not torch.onnx.is_in_onnx_export():
        return torch.slice_copy(torch.slice_copy(x, -2, 0, height), -1, 0, width)
    return x[..., :height, :width]


def linear_weights(source: int, target: int) -> Tensor:
    """Return the weights (target, source) of PyTorch's linear interpolation."""
    return F.interpolate(torch.eye(source)[None], target, mode="linear", align_corners=False)[0].mT


def _extent(length: int, ratio: float) -> int:
    """Return the largest number of coarse positions that a window can need, for any corner and rounding."""
    return length if ratio == 1 else ceil(length / ratio) + 3


def _weights(source: int, target: int, start: int, length: int, extent: int) -> tuple[int, Tensor]:
    """Return the first coarse position that a window needs, and its weights (length, extent)."""
    rows = linear_weights(source, target)[start : start + length]
    first = int(rows.any(dim=0).nonzero()[0])
    used = rows[:, first : first + extent]
    return first, F.pad(used, (0, extent - used.shape[1], 0, length - used.shape[0]))


def _padded(x: Tensor, corner: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return a window (C, *size) of a map, padded with zeros outside the map."""
    part = x[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]
    return F.pad(part, (0, size[1] - part.shape[2], 0, size[0] - part.shape[1]))
