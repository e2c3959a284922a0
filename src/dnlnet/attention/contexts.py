"""In which of PyTorch's contexts a call runs: those that only read numbers, and those that follow each operation."""

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled
from torch._C._functorch import get_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def is_recorded() -> bool:
    """Return whether `torch.compile`, `torch.export` or `torch.jit.trace` records the call for other inputs.

    >>> is_recorded()
    False
    """
    return is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def is_transformed() -> bool:
    """Whether `torch.func` or forward-mode differentiation may be following.

    >>> is_transformed(), torch.func.vmap(lambda x: x * is_transformed())(torch.ones(2))
    (False, tensor([1., 1.]))
    """
    return get_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_plain(first: Tensor, *others: Tensor) -> bool:
    """Whether operands are in one full precision, and numbers that can be looked at.

    >>> is_plain(torch.zeros(2), torch.zeros(3)), is_plain(torch.zeros(2).half()), is_plain(torch.zeros(2).to("meta"))
    (True, False, False)
    """
    dtype = first.dtype
    return (
        (dtype is torch.float32 or dtype is torch.float64)
        and all(operand.dtype is dtype for operand in others)
        and type(first) is Tensor
        and not first.is_meta
        and not _is_any_autocast_enabled()
    )
