"""Calls that make the host wait for the device.

The device is `meta`: its tensors have no values, so that a read fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")
aten = torch.ops.aten
# Operators with a result whose values or size the host needs.
READS = {
    aten._local_scalar_dense,
    aten.is_nonzero,
    aten.equal,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_consecutive,
    aten.repeat_interleave,
    aten.bincount,
}


class _Operators(TorchDispatchMode):
    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        devices = {tensor.device for tensor in tensors}
        options = kwargs or {}
        if function is aten._to_copy.default:
            devices.add(torch.device(options.get("device") or args[0].device))
        copies = function in (aten._to_copy.default, aten.copy_.default)
        blocks = copies and len(devices) > 1 and not (options.get("non_blocking") or any(args[2:]))
        masked = function in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default) and any(
            index.dtype == torch.bool for index in args[1] if index is not None
        )
        if META in devices and (function.overloadpacket in READS or blocks or masked):
            self.waits.append(str(function))
        return function(*args, **options)


class _Uploads(TorchFunctionMode):
    """Copies of numbers from the host, which PyTorch makes without an operator."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        device = options.get("device") or (args[0].device if function is Tensor.new_tensor else None)
        if function in (torch.tensor, torch.as_tensor, Tensor.new_tensor) and device and torch.device(device) == META:
            self.waits.append(function.__name__)
        return function(*args, **options)


@contextmanager
def counted() -> Iterator[list[str]]:
    """Yield the calls that make the host wait for the device."""
    waits: list[str] = []
    with _Uploads(waits), _Operators(waits):
        yield waits
