"""Tensors in nested containers, and the channels-last memory format, in which convolutions run faster."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def map_tensors(change: Callable[[Tensor], Any], content: Any) -> Any:
    """Replace each tensor in nested lists, tuples and dicts by `change(tensor)`; everything else stays.

    >>> map_tensors(lambda tensor: tuple(tensor.shape), [torch.zeros(2), {"image": torch.zeros(1, 3), "name": "a"}])
    [(2,), {'image': (1, 3), 'name': 'a'}]
    """
    if isinstance(content, Tensor):
        return change(content)
    if isinstance(content, dict):
        return {key: map_tensors(change, value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        changed = [map_tensors(change, value) for value in content]
        return type(content)(*changed) if hasattr(content, "_fields") else type(content)(changed)
    return content


def to_channels_last(tensor: Tensor) -> Tensor:
    """Convert images (B, C, H, W), clips (B, C, T, H, W) or kernels to channels-last; other tensors stay.

    >>> to_channels_last(torch.zeros(2, 3, 8, 4, 5)).stride()
    (480, 1, 60, 15, 3)
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def convert_to_channels_last(network: nn.Module) -> nn.Module:
    """Convert a network's kernels to channels-last in place; its features then are channels-last too.

    >>> convert_to_channels_last(nn.Conv3d(3, 4, kernel_size=2)).weight.stride()
    (24, 1, 12, 6, 3)
    """
    for parameter in network.parameters():
        parameter.data = to_channels_last(parameter.data)
    return network
