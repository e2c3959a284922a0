"""Memory of the machine, and memory needed for training."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def installed_bytes(device: torch.device | str = "cpu") -> int | None:
    """Return the memory of this machine or device, or None if it is unknown (on Windows).

    >>> installed_bytes() is None or installed_bytes() > 2**20
    True
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int | None:
    """Return the available memory of this machine on Linux, and its total memory elsewhere.

    >>> available_bytes() is None or available_bytes() <= installed_bytes()
    True
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return installed_bytes()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kilobytes[0] if kilobytes else installed_bytes()


def require_memory(needed: int, what: str, advice: str, device: torch.device | str = "cpu") -> None:
    """Raise if more memory is needed than the machine has.

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
    """Return the memory of one training step: weights, gradients, momentum, and tensors kept for the backward pass.

    Args:
        network: Network in training mode on the meta device, so that nothing is computed or allocated.
        batch: Input on the same device.

    >>> with torch.device("meta"):
    ...     step_bytes(nn.Sequential(nn.Linear(10, 20), nn.Sigmoid()), torch.empty(5, 10))
    3240
    """
    weights = {tensor.untyped_storage()._cdata for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, Tensor] = {}  # by storage; kept alive so that addresses stay unique

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def restore(tensor: Tensor) -> Any:
        return tensor

    with saved_tensors_hooks(keep, restore):
        network(batch)
    saved = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)
    trained = sum(parameter.nbytes for parameter in network.parameters() if parameter.requires_grad)
    return saved + 2 * trained + sum(parameter.nbytes for parameter in network.parameters())
