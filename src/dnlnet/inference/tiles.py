"""Labels of pictures too large for memory, tile by tile."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

Size = tuple[int, int]


def tiled_labels(label: Callable[[Tensor], Tensor], image: Tensor, max_pixels: int, margin: int = 64) -> Tensor:
    """Labels (H, W) of a picture (3, H, W), of which at most about `max_pixels` pixels are looked at at once.

    A tile is looked at together with a margin around it, which is then cut off, so that borders of tiles do not show.
    Attention reaches as far as the tile and its margin, not over the whole picture: the result is close to that of
    the whole picture, not equal to it.

    Args:
        label: from a picture (3, h, w) to its labels (h, w).
        image: in 0..255.
        max_pixels: of a tile with its margin.
        margin: pixels around a tile, where the picture has them.

    >>> image = torch.arange(300).view(1, 15, 20).expand(3, -1, -1)
    >>> torch.equal(tiled_labels(lambda part: part[0], image, max_pixels=64, margin=1), image[0])
    True
    """
    height, width = image.shape[-2:]
    if height * width <= max_pixels:
        return label(image)
    side = int(max_pixels**0.5) - 2 * margin
    if side < 1:
        raise ValueError(f"tiles of {max_pixels} pixels have no room inside a margin of {margin}; allow more pixels")
    labels: Tensor | None = None
    for (top, bottom), (left, right) in _tiles(height, width, side):
        y0, y1 = max(0, top - margin), min(height, bottom + margin)
        x0, x1 = max(0, left - margin), min(width, right + margin)
        part = label(image[:, y0:y1, x0:x1])
        if labels is None:
            labels = torch.empty(height, width, dtype=part.dtype)
        labels[top:bottom, left:right] = part[top - y0 : bottom - y0, left - x0 : right - x0]
    assert labels is not None  # there is at least one tile
    return labels


def _tiles(height: int, width: int, side: int) -> Iterator[tuple[Size, Size]]:
    """Rows and columns of each tile: as equal as can be, none larger than `side`."""
    for rows in _cuts(height, side):
        for columns in _cuts(width, side):
            yield rows, columns


def _cuts(length: int, side: int) -> list[Size]:
    count = -(-length // side)
    ends = [length * number // count for number in range(count + 1)]
    return list(pairwise(ends))
