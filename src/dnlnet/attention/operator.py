"""Softmax attention as the operator ``torch.ops.dnlnet.attend``, with O(N + M) memory, forward and backward.

The operator is opaque to `torch.compile`, `torch.export` and the FLOP counter. Its arithmetic is in
`dnlnet.attention.blocked`, and for bfloat16 on processors with instructions for it in `dnlnet.attention.half`. A
small attention is computed by its definition instead, because the calls of the operator would take longer than its
arithmetic.

On CUDA, `attend` calls PyTorch's `scaled_dot_product_attention` wherever one of its fused kernels accepts the shapes.
This happens outside the operator on purpose: those kernels are operators themselves, with autograd, shapes for
`torch.compile` and FLOP formulas. Inside ours they would lose their autograd, and calling their backward operators by
hand would need private signatures that change between releases. The operator still has a CUDA implementation, for
float64 and for shapes that no fused kernel accepts.
"""

# B batch, N query positions, M key positions, D embedding width, C value width

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import register_flop_formula

from dnlnet.attention import blocked, half

# Largest attention (B N M) with second derivatives, which need all of it at once.
MAX_TWICE = 2**20
# Largest query, key and value width of flash attention.
FLASH_WIDTH = 256
_HALF_PRECISION = (torch.float16, torch.bfloat16)
_FULL_PRECISION = ({torch.float32}, {torch.float64})


def attend(query: Tensor, key: Tensor, value: Tensor, *, columns: bool = False) -> Tensor:
    """y_i = sum_j softmax_j(q_i.k_j) v_j, never holding more than a block of rows of a large attention.

    Args:
        query: (B, N, D)
        key: (B, M, D)
        value: (B, M, C)
        columns: Lay out the output of the operator in memory as (B, C, N), which is fast to add to a channels-first
            map.

    Returns:
        (B, N, C), finite whenever query, key and value are.

    >>> attend(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    if query.is_cuda and query.dtype != torch.float64:
        return _attend_cuda(query, key, value)
    return _attend_blocked(query, key, value, columns)


def attend_explicit(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`attend` by its definition, forming the N x M attention, for comparison."""
    return (query @ key.mT).softmax(dim=-1) @ value


def _attend_blocked(query: Tensor, key: Tensor, value: Tensor, columns: bool = False) -> Tensor:
    """Compute a small attention directly, or call the operator, which keeps a softmax that fits for the backward."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        out: Tensor = torch.ops.dnlnet.attend(query, key, value)[0]  # for any size, whatever this one is
        return out
    operands = query, key, value
    if _has_tangent(operands):
        raise NotImplementedError(_NO_DERIVATIVE.format("forward-mode derivatives"))
    small = _attend_small(query, key, value)
    if small is not None:
        return small
    keep = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
    keep = keep and _logits(query, key) <= blocked.MAX_LOGITS * (2 if half.accepts(*operands) else 1)  # in bytes
    try:
        out = torch.ops.dnlnet.attend(query, key, value, keep, columns)[0]
    except RuntimeError as error:
        if not any(map(_is_transformed, operands)):
            raise
        what = "torch.func's derivatives (grad, vjp, jvp, jacrev, jacfwd, hessian)"
        raise NotImplementedError(_NO_DERIVATIVE.format(what)) from error
    return out


def _logits(query: Tensor, key: Tensor) -> int:
    return query.shape[0] * query.shape[1] * key.shape[1]


_NO_DERIVATIVE = (
    "dnlnet's fused attention does not support {}; call block.forward_explicit(x), which forms the N x M map, "
    "or use torch.autograd.grad"
)


def _has_tangent(operands: Sequence[Tensor]) -> bool:
    """Return whether forward-mode differentiation follows an operand: operators silently drop tangents."""
    try:
        return any(forward_ad.unpack_dual(operand).tangent is not None for operand in operands)
    except RuntimeError:  # inside of `vmap`, which cannot tell
        return True


def _attend_small(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """Return `attend_explicit` for few logits on a CPU, or None where the operator is needed.

    It is needed for half precision that is computed in float32, if weights are subnormal or logits overflow, for
    tensors without values, and under `torch.func`, whose derivatives are refused at any size.
    """
    in_half = half.accepts(query, key, value)
    # With more logits than this, the operator's calls take a small part of its time.
    most = half.MIN_LOGITS if in_half else blocked.MIN_LOGITS // 8
    if not (query.is_cpu and 0 < _logits(query, key) <= min(most, blocked.MAX_LOGITS)):
        return None
    if not in_half and {query.dtype, key.dtype, value.dtype} not in _FULL_PRECISION:
        return None
    try:
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") != query.dtype:
            return None
        logits = query @ key.mT
        in_place = None if torch.is_grad_enabled() else logits
        weights = torch.softmax(logits, dim=-1, out=in_place)
        smallest = weights.detach().min().item()  # NaN if a logit overflows
    except RuntimeError:  # no values: under `vmap`, of fake tensors and on the meta device
        return None
    moderate = smallest >= torch.finfo(query.dtype).tiny ** blocked.WEIGHT_RANGE
    return weights @ value if moderate and not any(map(_is_transformed, (query, key, value))) else None


def _is_transformed(operand: Tensor) -> bool:
    """Return whether a transform of `torch.func` has wrapped the tensor; such a tensor has no storage."""
    try:
        operand.data_ptr()
    except RuntimeError:
        return True
    return False


def _attend_cuda(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Call PyTorch's fused kernels where one accepts the shapes, on values in parts that suit flash attention."""
    in_half = query.dtype in _HALF_PRECISION
    if in_half and SDPBackend.CUDNN_ATTENTION in _usable_kernels(*_heads(query, key, value)):
        return _attend_fused(query, key, value, [SDPBackend.CUDNN_ATTENTION])  # takes values of their own width
    if in_half and query.shape[2] <= FLASH_WIDTH < value.shape[2]:
        parts = [_attend_cuda(query, key, part) for part in value.split(FLASH_WIDTH, dim=2)]
        return torch.cat(parts, dim=2)
    # Flash attention takes equal widths only; zeros change nothing.
    equal = max(query.shape[2], value.shape[2]) if in_half else 0
    usable = _usable_kernels(*_heads(query, key, value, equal))
    return _attend_fused(query, key, value, usable, equal) if usable else _attend_blocked(query, key, value)


def _attend_fused(query: Tensor, key: Tensor, value: Tensor, usable: list[SDPBackend], least: int = 0) -> Tensor:
    with sdpa_kernel(usable):
        out = F.scaled_dot_product_attention(*_heads(query, key, value, least), scale=1.0)
    return out.squeeze(1)[..., : value.shape[2]]


def _heads(query: Tensor, key: Tensor, value: Tensor, least: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Add the dimension of heads, and zeros up to multiples of 8, which all kernels need, and to the least width."""

    def padded(operand: Tensor) -> Tensor:
        width = max(operand.shape[2], least)
        return F.pad(operand, (0, width + -width % 8 - operand.shape[2])).unsqueeze(1)

    return padded(query), padded(key), padded(value)


def _usable_kernels(query: Tensor, key: Tensor, value: Tensor) -> list[SDPBackend]:
    """Return PyTorch's fused kernels that accept these operands on this device.

    The math backend is missing because it would silently form the N x M attention.
    """
    try:  # an experimental part of PyTorch
        params = cuda.SDPAParams(query, key, value, None, 0.0, False, False)
        fused = {
            SDPBackend.FLASH_ATTENTION: cuda.can_use_flash_attention,
            SDPBackend.EFFICIENT_ATTENTION: cuda.can_use_efficient_attention,
            SDPBackend.CUDNN_ATTENTION: cuda.can_use_cudnn_attention,
        }
    except (AttributeError, TypeError) as error:
        warnings.warn(
            f"torch {torch.__version__} does not tell which of its attention kernels accept these shapes ({error}); "
            "dnlnet uses its own attention, which is slower",
            stacklevel=2,
        )
        return []
    return [kernel for kernel, can_use in fused.items() if can_use(params)]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    softmax = output[1]
    ctx.mark_non_differentiable(softmax)
    ctx.set_materialize_grads(False)  # no zeros as large as the softmax
    ctx.save_for_backward(*inputs[:3], softmax)


def _differentiate(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    query, key, value, softmax = ctx.saved_tensors
    if torch.is_grad_enabled() and _logits(query, key) <= MAX_TWICE:  # a second derivative may follow
        grads = blocked.differentiable_backward(grad, query, key, value)
    else:
        grads = torch.ops.dnlnet.attend_backward(grad, query, key, value, softmax)
    return *grads, None, None


def _save_nothing(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    pass


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError(
        "dnlnet's fused attention has a first derivative only; for a second derivative "
        "(gradient penalties, Hessians) call block.forward_explicit(x), which forms the N x M map"
    )


def _output_shapes(
    query: Tensor, key: Tensor, value: Tensor, keep: bool = False, columns: bool = False
) -> tuple[Tensor, Tensor]:
    (batch, positions, _), (keys, width) = query.shape, value.shape[1:]
    out = value.new_empty_strided((batch, positions, width), blocked.output_strides(positions, width, columns))
    if keep and half.accepts(query, key, value):
        return out, query.new_empty(batch, positions, half.padded_keys(keys))
    kept = (batch, positions, blocked.padded_keys(keys)) if keep else (0,)
    return out, query.new_empty(kept, dtype=torch.promote_types(query.dtype, torch.float32))


def _gradient_shapes(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, softmax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, keep: bool = False, columns: bool = False
) -> tuple[Tensor, Tensor]:
    compute = half.attend if half.accepts(query, key, value) else blocked.attend
    return compute(query, key, value, keep, columns)


def _attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, softmax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    compute = half.attend_backward if half.accepts(query, key, value) else blocked.attend_backward
    return compute(grad, query, key, value, softmax)


# Registered by hand: `torch.library.custom_op` imports the whole compiler at the first call, which takes seconds.
_library = torch.library.Library("dnlnet", "DEF")
_library.define(
    "attend(Tensor query, Tensor key, Tensor value, bool keep=False, bool columns=False) -> (Tensor, Tensor)"
)
_library.define(
    "attend_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor softmax) -> (Tensor, Tensor, Tensor)"
)
for _device in ("CPU", "CUDA", "CompositeExplicitAutograd"):  # the last is any other device
    _library.impl("attend", _attend, _device)
    _library.impl("attend_backward", _attend_backward, _device)
torch.library.register_fake("dnlnet::attend", _output_shapes)
torch.library.register_fake("dnlnet::attend_backward", _gradient_shapes)
torch.library.register_autograd("dnlnet::attend", _differentiate, setup_context=_save_for_backward)
torch.library.register_autograd("dnlnet::attend_backward", _no_second_derivative, setup_context=_save_nothing)


def _matmul_flops(query: torch.Size, key: torch.Size, value: torch.Size) -> tuple[int, int]:
    """FLOPs (2 x MACs) of one product over the embedding width, and over the value width."""
    pairs = 2 * query[0] * query[1] * key[1]
    return pairs * query[2], pairs * value[2]


@register_flop_formula(torch.ops.dnlnet.attend)
def _(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    return sum(_matmul_flops(query, key, value))


@register_flop_formula(torch.ops.dnlnet.attend_backward)
def _(grad: torch.Size, query: torch.Size, key: torch.Size, value: torch.Size, softmax: torch.Size, **_: Any) -> int:
    embed, values = _matmul_flops(query, key, value)
    return (2 if softmax.numel() else 3) * embed + 2 * values
