"""Default query points: well inside the thickest regions."""

# H, W size of the image

import torch.nn.functional as F
from torch import Tensor

from dnlnet.data.classes import IGNORE

Point = tuple[int, int]  # (row, column) in pixels of the image


def interior_points(labels: Tensor, count: int = 3, classes: int = IGNORE) -> list[Point]:
    """Return the pixel farthest from any border of `count` classes, thickest region first.

    Labels from `classes` on are ignored. Without any class, return the centre of the image.

    >>> import torch
    >>> labels = torch.zeros(9, 9, dtype=torch.int64)
    >>> labels[:, 6:] = 1
    >>> interior_points(labels, count=2)
    [(2, 2), (1, 7)]
    """
    found: list[tuple[int, Point]] = []
    for label in (label for label in labels.unique().tolist() if label < classes):
        radius, point = _largest_square(labels == label)
        found.append((-radius, point))
    return [point for _, point in sorted(found)[:count]] or [(labels.shape[0] // 2, labels.shape[1] // 2)]


def _largest_square(inside: Tensor) -> tuple[int, Point]:
    """Return the radius and centre of the first largest square in a region (H, W), by bisection over the radius."""
    sums = F.pad(inside.cumsum(dim=0).cumsum(dim=1), (1, 0, 1, 0))

    def squares(radius: int) -> Tensor:
        side = 2 * radius + 1
        count = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
        return count == side**2

    smallest, largest = 0, (min(inside.shape) - 1) // 2
    while smallest < largest:
        middle = (smallest + largest + 1) // 2
        smallest, largest = (middle, largest) if squares(middle).any() else (smallest, middle - 1)
    full = squares(smallest)
    row, column = divmod(int(full.flatten().float().argmax()), full.shape[1])
    return smallest, (row + smallest, column + smallest)
