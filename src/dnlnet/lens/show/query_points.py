"""Default query points: well inside the thickest regions."""

# H, W size of the image

import numpy as np
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
    """Return the radius and centre of the first largest square in a region (H, W)."""
    from scipy.ndimage import distance_transform_cdt  # late: it takes a while to import

    depth = distance_transform_cdt(np.pad(inside.numpy(), 1), "chessboard")[1:-1, 1:-1]
    row, column = divmod(int(depth.argmax()), depth.shape[1])
    return int(depth[row, column]) - 1, (row, column)
