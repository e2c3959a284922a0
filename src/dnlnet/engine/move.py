"""Move batches to the model's device."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dnlnet.layout import to_channels_last


def to_device(batch: Any, device: torch.device, *, channels_last: bool = False) -> Any:
    """The batch with every tensor on the device, images and clips in channels-last memory if asked.

    >>> to_device({"image": torch.zeros(1, 3, 4, 4), "name": "a.png"}, torch.device("cpu"))["name"]
    'a.png'
    """

    def move(tensor: Tensor) -> Tensor:
        moved = tensor.to(device, non_blocking=True)
        return to_channels_last(moved) if channels_last else moved

    return tree_map_only(Tensor, move, batch)
