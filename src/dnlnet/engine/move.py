"""Batches from the memory of the data to the device of the model."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


def to_device(batch: Any, device: torch.device, *, channels_last: bool = False) -> Any:
    """The batch with every tensor on the device; images (B, C, H, W) with their channels last in memory if asked.

    >>> to_device({"image": torch.zeros(1, 3, 4, 4), "name": "a.png"}, torch.device("cpu"))["name"]
    'a.png'
    """

    def move(tensor: Tensor) -> Tensor:
        memory = torch.channels_last if channels_last and tensor.dim() == 4 else torch.preserve_format
        return tensor.to(device, non_blocking=True, memory_format=memory)

    return tree_map_only(Tensor, move, batch)
