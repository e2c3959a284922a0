"""What a network makes of the views of a video: clips at several times, each in several crops."""

# V views, T frames, H, W size of a view, K classes

from collections.abc import Callable

import torch
from torch import Tensor

VIEWS_PER_BATCH = 8


def view_logits(network: Callable[[Tensor], Tensor], views: Tensor, views_per_batch: int = VIEWS_PER_BATCH) -> Tensor:
    """Logits (V, K) of the views (V, 3, T, H, W) of a video, some of them at a time.

    >>> view_logits(lambda clips: clips.mean(dim=(2, 3, 4)), torch.rand(5, 3, 4, 6, 6), views_per_batch=2).shape
    torch.Size([5, 3])
    """
    if views_per_batch < 1:
        raise ValueError(f"a batch needs at least 1 view, got {views_per_batch}")
    if not len(views):
        raise ValueError("a video without views has no scores")
    return torch.cat([network(some) for some in views.split(views_per_batch)])
