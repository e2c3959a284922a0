"""Strength of attention relative to uniform attention. It alone decides how bright figures and pages draw a map."""

import torch
from torch import Tensor

HALF_BRIGHT = 2  # multiple of uniform attention that is drawn half bright
LEARNT_LITTLE = "nearly uniform: this block has learnt little yet"
UNIFORM = 1.2  # a map is nearly uniform if its maximum is at most this multiple of uniform attention
TICKS = (0, 1, 2, 5, 20)  # multiples of uniform attention in legends


def times_uniform(attention: Tensor) -> Tensor:
    """Return a map in multiples of uniform attention, which is its mean.

    >>> times_uniform(torch.tensor([0.1, 0.1, 0.4])).tolist()
    [0.5, 0.5, 2.0]
    """
    return attention / attention.mean().clamp(min=torch.finfo(torch.float32).tiny)


def brightness(strength: Tensor) -> Tensor:
    """Return r / (r + 2) for r times uniform attention: below a half up to twice uniform, and never quite 1.

    >>> brightness(torch.tensor([0.0, 1.0, 2.0, 6.0, 1998.0])).tolist()
    [0.0, 0.3333333432674408, 0.5, 0.75, 0.9990000128746033]
    """
    return strength / (strength + HALF_BRIGHT)


def is_nearly_uniform(attention: Tensor) -> bool:
    """Return whether the maximum is close to the mean.

    >>> is_nearly_uniform(torch.tensor([1.0, 1.1])), is_nearly_uniform(torch.tensor([1.0, 1.0, 2.0]))
    (True, False)
    """
    return bool(attention.max() <= UNIFORM * attention.mean())
