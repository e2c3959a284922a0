"""Softmax attention in memory linear in the number of positions, forward and backward.

`attend` is the only entry point; it chooses the kernel. On CUDA these are PyTorch's own fused kernels where one takes
the shapes; everywhere else it is the blocked attention of `dnlnet.attention.blocked`.
"""

# B batch, N query positions, M key positions, D embedding width, C value width

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad
from torch.backends.cuda import (
    SDPAParams,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from dnlnet.attention.blocked import attend_keeping
from dnlnet.attention.contexts import is_plain, is_recorded, is_transformed
from dnlnet.attention.operator import attend_again

# The widest query, key and value of flash attention.
FLASH_WIDTH = 256
_HALF_PRECISION = (torch.float16, torch.bfloat16)
# The math backend is not among them: it would silently form the N x M attention.
_FUSED = {
    SDPBackend.FLASH_ATTENTION: can_use_flash_attention,
    SDPBackend.EFFICIENT_ATTENTION: can_use_efficient_attention,
    SDPBackend.CUDNN_ATTENTION: can_use_cudnn_attention,
}


def attend(query: Tensor, key: Tensor, value: Tensor, *, columns: bool = False) -> Tensor:
    """y_i = sum_j softmax_j(q_i.k_j) v_j, never holding more than a block of rows of the attention.

    Args:
        query: (B, N, D)
        key: (B, M, D)
        value: (B, M, C)
        columns: prefer an output that lies in memory as (B, C, N), to which a map with channels first is added fast.

    Returns:
        (B, N, C), finite whenever query, key and value are.

    >>> attend(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    if query.is_cuda and query.dtype != torch.float64:
        return _attend_cuda(query, key, value)
    if is_recorded():  # as one operator for any size, not as the blocks of this one
        return attend_again(query, key, value)
    if is_transformed():
        _refuse_derivatives(query, key, value)
    elif is_plain(query, key, value):
        out = attend_keeping(query, key, value, columns)
        if out is not None:
            return out
    return attend_again(query, key, value)


def attend_explicit(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`attend` by its definition, forming the N x M attention, for comparison."""
    return (query @ key.mT).softmax(dim=-1) @ value


def _attend_cuda(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """PyTorch's fused kernels where one takes the shapes, with the values in parts that flash attention takes."""
    half = query.dtype in _HALF_PRECISION
    if half and query.shape[2] <= FLASH_WIDTH < value.shape[2]:
        parts = [_attend_cuda(query, key, part) for part in value.split(FLASH_WIDTH, dim=2)]
        return torch.cat(parts, dim=2)
    # Flash attention takes equal widths only, and all kernels multiples of 8; zeros change nothing.
    equal = max(query.shape[2], value.shape[2]) if half else 0
    q, k, v = (_pad_width(operand, equal).unsqueeze(1) for operand in (query, key, value))
    usable = _usable_kernels(q, k, v)
    if not usable:
        return attend_again(query, key, value)
    with sdpa_kernel(usable):
        out = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    return out.squeeze(1)[..., : value.shape[2]]


def _pad_width(operand: Tensor, least: int) -> Tensor:
    width = max(operand.shape[2], least)
    return F.pad(operand, (0, width + -width % 8 - operand.shape[2]))


def _usable_kernels(query: Tensor, key: Tensor, value: Tensor) -> list[SDPBackend]:
    """Those of PyTorch's fused kernels that take these operands on this device."""
    params = SDPAParams(query, key, value, None, 0.0, False, False)
    return [kernel for kernel, can_use in _FUSED.items() if can_use(params)]


def _refuse_derivatives(*operands: Tensor) -> None:
    """Refuse forward-mode derivatives and `torch.func`, which would silently drop the attention; `vmap` works."""
    if {transform.key() for transform in get_interpreter_stack() or ()} - {TransformType.Vmap}:
        what = "torch.func's derivatives (grad, vjp, jvp, jacrev, jacfwd, hessian)"
    elif any(forward_ad.unpack_dual(operand).tangent is not None for operand in operands):
        what = "forward-mode derivatives"
    else:
        return
    raise NotImplementedError(
        f"dnlnet's fused attention does not support {what}; call block.forward_explicit(x), which forms the N x M "
        "map, or use torch.autograd.grad"
    )
