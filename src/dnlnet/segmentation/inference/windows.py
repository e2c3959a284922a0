"""Sliding windows that cover every pixel. Logits of overlapping windows are averaged."""

# B windows per pass, K classes, H, W size of the image

from collections.abc import Callable

import torch
from torch import Tensor

Size = tuple[int, int]
Network = Callable[[Tensor], Tensor]  # (B, 3, H, W) images -> (B, K, H, W) logits


def starts(length: int, window: int, stride: int) -> list[int]:
    """Return the starts of windows that cover a length: a stride apart, the last one flush with the end.

    >>> starts(length=10, window=4, stride=3)
    [0, 3, 6]
    >>> starts(length=11, window=4, stride=3)
    [0, 3, 6, 7]
    >>> starts(length=3, window=4, stride=3)
    [0]
    """
    if not 0 < stride <= window:
        raise ValueError(f"a stride of {stride} with windows of {window} leaves gaps; expected 1..{window}")
    last = max(0, length - window)
    return [*range(0, last, stride), last]


def window_count(length: int, window: int, stride: int) -> int:
    """Return the number of windows that cover a length, which may be shorter than a window.

    >>> window_count(11, window=4, stride=3), window_count(3, window=4, stride=3)
    (4, 1)
    """
    return len(range(0, max(0, length - window), stride)) + 1


def corners(size: Size, window: Size, stride: Size) -> list[Size]:
    """Return the top and left of every window over an image of this height and width.

    In a direction where the image is smaller than the window, one window covers it.

    >>> corners((3, 10), (4, 4), (3, 3))
    [(0, 0), (0, 3), (0, 6)]
    """
    rows, columns = (
        starts(length, min(side, length), min(step, side, length))
        for length, side, step in zip(size, window, stride, strict=True)
    )
    return [(top, left) for top in rows for left in columns]


def sliding_logits(network: Network, image: Tensor, window: Size, stride: Size, batch: int = 4) -> Tensor:
    """Return the logits (1, K, H, W) of an image, averaged over the windows at `corners`.

    Memory does not grow with the number of windows: only the sum and the count per pixel are kept.

    Args:
        network: Network whose logits have the size of its input.
        image: Image (1, 3, H, W).
        window, stride: Height and width of the windows and of their steps.
        batch: Windows per pass through the network.

    >>> sliding_logits(lambda x: x[:, :1], torch.ones(1, 3, 10, 10), (4, 4), (3, 3)).shape
    torch.Size([1, 1, 10, 10])
    """
    height, width = image.shape[-2:]
    places = corners((height, width), window, stride)
    window = min(window[0], height), min(window[1], width)
    total: Tensor | None = None
    count = image.new_zeros(height, width)
    for first in range(0, len(places), batch):
        group = places[first : first + batch]
        parts = torch.cat([image[..., y : y + window[0], x : x + window[1]] for y, x in group])
        logits = network(parts)
        if total is None:
            total = logits.new_zeros(1, logits.shape[1], height, width)
        for part, (y, x) in zip(logits, group, strict=True):
            total[0, :, y : y + window[0], x : x + window[1]] += part
            count[y : y + window[0], x : x + window[1]] += 1
    assert total is not None  # there is at least one window
    return total.div_(count)
