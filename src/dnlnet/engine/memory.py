"""Memory: how much there is, and how much training takes."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def installed_bytes(device: torch.device | str = "cpu") -> int | None:
    """The memory of this machine or of its device; None where that cannot be asked (Windows).

    >>> installed_bytes() is None or installed_bytes() > 2**20
    True
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(needed: int, what: str, advice: str, device: torch.device | str = "cpu") -> None:
    """An error in a sentence if more is needed than there is.

    >>> require_memory(10**18, "a batch of 9", "make it smaller")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: a batch of 9 takes at least 1,000,000,000.0 GB of memory, and there are ... GB; make it smaller
    """
    installed = installed_bytes(device)
    if installed is not None and needed > installed:
        raise ValueError(
            f"{what} takes at least {needed / 1e9:,.1f} GB of memory, and there are {installed / 1e9:,.1f} GB; "
            f"{advice}"
        )


def step_bytes(network: nn.Module, batch: Tensor) -> int:
    """What a step of training keeps at once: weights, gradients, momentum, and all that the backward pass looks at.

    Args:
        network: as it is trained, on the meta device, where nothing is computed and nothing takes memory.
        batch: an input for it, there too.

    >>> with torch.device("meta"):
    ...     step_bytes(nn.Sequential(nn.Linear(10, 20), nn.Sigmoid()), torch.empty(5, 10))
    3240
    """
    weights = {tensor.untyped_storage()._cdata for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, Tensor] = {}  # by their memory, and alive, so that no other takes it

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def give(tensor: Tensor) -> Any:
        return tensor

    with saved_tensors_hooks(keep, give):
        network(batch)
    looked_at = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)
    trained = sum(parameter.nbytes for parameter in network.parameters() if parameter.requires_grad)
    return looked_at + 2 * trained + sum(parameter.nbytes for parameter in network.parameters())
