"""What a network makes of the views of a video: clips at several times, each in several crops."""

# V views, T frames, H, W size of a view, K classes

from collections.abc import Callable

import torch
from torch import Tensor

AT_ONCE = 8


def view_logits(network: Callable[[Tensor], Tensor], views: Tensor, at_once: int = AT_ONCE) -> Tensor:
    """Logits (V, K) of the views (V, 3, T, H, W) of a video, some of them at a time.

    >>> view_logits(lambda clips: clips.mean(dim=(2, 3, 4)), torch.rand(5, 3, 4, 6, 6), at_once=2).shape
    torch.Size([5, 3])
    """
    if at_once < 1:
        raise ValueError(f"at least 1 view must be looked at at once, got {at_once}")
    if not len(views):
        raise ValueError("a video without views has no scores")
    return torch.cat([network(some) for some in views.split(at_once)])
