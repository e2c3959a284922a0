"""Prediction of images too large for memory, tile by tile."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from dnlnet.segmentation.inference.windows import Size

MARGIN = 64  # pixels


def tiled_labels(label: Callable[[Tensor], Tensor], image: Tensor, max_pixels: int, margin: int = MARGIN) -> Tensor:
    """Predict the labels (H, W) of an image (3, H, W) in tiles of at most about `max_pixels` pixels.

    Each tile is predicted with a margin, which is then cut off to hide the borders between tiles. Attention is
    limited to the tile and its margin, so the result is close but not equal to that of the whole image.

    Args:
        label: Function from an image (3, h, w) to its labels (h, w).
        image: Image in 0..255.
        max_pixels: Approximate largest size of a tile with its margin.
        margin: Pixels around a tile, up to the border of the image.

    >>> image = torch.arange(300).view(1, 15, 20).expand(3, -1, -1)
    >>> torch.equal(tiled_labels(lambda part: part[0], image, max_pixels=64, margin=1), image[0])
    True
    """
    height, width = image.shape[-2:]
    labels: Tensor | None = None
    for tile in tiles((height, width), max_pixels, margin):
        (top, bottom), (left, right), (y0, y1), (x0, x1) = tile
        part = label(image[:, y0:y1, x0:x1])
        if labels is None:
            labels = torch.empty(height, width, dtype=part.dtype)
        labels[top:bottom, left:right] = part[top - y0 : bottom - y0, left - x0 : right - x0]
    assert labels is not None  # there is at least one tile
    return labels


class Tile(NamedTuple):
    """Rows and columns of a tile, without and with its margin; each is a start and an end."""

    rows: Size
    columns: Size
    seen_rows: Size
    seen_columns: Size

    @property
    def seen_size(self) -> Size:
        """Height and width of the tile with its margin."""
        (top, bottom), (left, right) = self.seen_rows, self.seen_columns
        return bottom - top, right - left


def tiles(size: Size, max_pixels: int, margin: int = MARGIN) -> list[Tile]:
    """Cut an image of this height and width into nearly equal tiles. An image of at most `max_pixels` is one tile.

    >>> [tile.seen_size for tile in tiles((40, 90), max_pixels=2500, margin=5)]
    [(40, 35), (40, 40), (40, 35)]
    """
    height, width = size
    side = max(size) if height * width <= max_pixels else int(max_pixels**0.5) - 2 * margin
    if side < 1:
        raise ValueError(f"tiles of {max_pixels} pixels have no room inside a margin of {margin}; allow more pixels")

    def seen(cut: Size, length: int) -> Size:
        return max(0, cut[0] - margin), min(length, cut[1] + margin)

    return [
        Tile(rows, columns, seen(rows, height), seen(columns, width))
        for rows in _cuts(height, side)
        for columns in _cuts(width, side)
    ]


def _cuts(length: int, side: int) -> list[Size]:
    count = -(-length // side)
    ends = [length * number // count for number in range(count + 1)]
    return list(pairwise(ends))
