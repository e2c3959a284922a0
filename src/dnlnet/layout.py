"""The order of channels in memory: last, where convolutions are faster for it."""

import torch
from torch import Tensor, nn


def channels_last(tensor: Tensor) -> Tensor:
    """Images (B, C, H, W), clips (B, C, T, H, W) and kernels with their channels last in memory; others as they are.

    >>> channels_last(torch.zeros(2, 3, 8, 4, 5)).stride()
    (480, 1, 60, 15, 3)
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def with_channels_last(network: nn.Module) -> nn.Module:
    """The network itself, its kernels with their channels last; what it computes then has them so, too.

    >>> with_channels_last(nn.Conv3d(3, 4, kernel_size=2)).weight.stride()
    (24, 1, 12, 6, 3)
    """
    for parameter in network.parameters():
        parameter.data = channels_last(parameter.data)
    return network
