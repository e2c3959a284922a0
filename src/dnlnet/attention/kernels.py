"""Softmax attention in memory linear in the number of positions, forward and backward.

`attend` is the only entry point. Off CUDA it runs a blocked operator: a few hundred query rows at a time against
all keys, so that every softmax is over a whole row and needs no running maximum. The backward pass recomputes the
rows, so only query, key and value are saved. The operator is registered with PyTorch as ``dnlnet::attend``, hence
opaque to `torch.compile`, `torch.export` and the FLOP counter, whatever the shape.
"""

# B batch, N query positions, M key positions, D embedding width, C value width, R rows of one block

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import register_flop_formula

# Rows of queries per block: enough for the matrix multiply to run at full speed ...
FORWARD_ROWS = 768
BACKWARD_ROWS = 512  # two buffers of them
# ... but fewer where a buffer would take more than 64 MB in float32.
MAX_LOGITS = 2**24
# A row of logits starts at a multiple of 16 floats (one cache line): with 9409 keys the product q.k
# otherwise runs a third slower.
ROW_ALIGNMENT = 16


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """y_i = sum_j softmax_j(q_i.k_j) v_j, never holding more than a block of rows of the attention.

    Args:
        query: (B, N, D)
        key: (B, M, D)
        value: (B, M, C)

    Returns:
        (B, N, C), finite whenever query, key and value are.

    >>> attend(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    if query.is_cuda and query.dtype != torch.float64:
        return _attend_cuda(query, key, value)
    if not torch.compiler.is_compiling():
        _refuse_transforms(query, key, value)
    out: Tensor = torch.ops.dnlnet.attend(query, key, value)
    return out


def attend_explicit(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`attend` by its definition, forming the N x M attention, for comparison."""
    return (query @ key.mT).softmax(dim=-1) @ value


def _attend_cuda(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Use PyTorch's fused kernels, with widths padded to the multiple of 8 that they require.

    The math backend is excluded: it would silently form the N x M attention.
    """
    width = value.shape[-1]
    query, key, value = (F.pad(t, (0, -t.shape[-1] % 8)).unsqueeze(1) for t in (query, key, value))
    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    with sdpa_kernel(fused):
        out = F.scaled_dot_product_attention(query, key, value, scale=1.0)
    return out.squeeze(1)[..., :width]


def _refuse_transforms(*operands: Tensor) -> None:
    """Refuse forward-mode derivatives and `torch.func`, which would silently drop the attention; `vmap` works."""
    transforms = {transform.key() for transform in torch._C._functorch.get_interpreter_stack() or ()}
    if transforms - {torch._C._functorch.TransformType.Vmap}:
        what = "torch.func's derivatives (grad, vjp, jvp, jacrev, jacfwd, hessian)"
    elif any(forward_ad.unpack_dual(operand).tangent is not None for operand in operands):
        what = "forward-mode derivatives"
    else:
        return
    raise NotImplementedError(
        f"dnlnet's fused attention does not support {what}; call block.forward_explicit(x), which forms the N x M "
        "map, or use torch.autograd.grad"
    )


def _attend_blocked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    wide = _compute_dtype(query.dtype)
    query, key, _ = _prevent_overflow(query.to(wide), key.to(wide))
    out = value.new_empty(*query.shape[:2], value.shape[2])
    logits = _row_buffer(query, key, FORWARD_ROWS)
    for b, k, v in zip(range(len(key)), key, value.to(wide), strict=True):
        columns = k.mT.contiguous()  # q.k alone runs about a tenth faster on keys in this order
        for rows in _row_blocks(query.shape[1], logits.shape[0]):
            attention = _softmax_rows(query[b, rows], columns, logits)
            if out.dtype == wide:
                torch.mm(attention, v, out=out[b, rows])
            else:
                out[b, rows] = attention @ v
    return out


def _attend_blocked_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """With P = softmax(q.k) and y = P v: dv = P'dy, dP = dy v', dl = P (dP - sum_j P dP), dq = dl k, dk = dl'q."""
    dtypes = query.dtype, key.dtype, value.dtype
    wide = _compute_dtype(query.dtype)
    query, key, shrink = _prevent_overflow(query.to(wide), key.to(wide))
    value, grad = value.to(wide), grad.to(wide)
    grad_query = torch.empty_like(query, memory_format=torch.contiguous_format)
    grad_key = torch.zeros_like(key, memory_format=torch.contiguous_format)
    grad_value = torch.zeros_like(value, memory_format=torch.contiguous_format)
    logits, grad_logits = (_row_buffer(query, key, BACKWARD_ROWS) for _ in range(2))
    for b, k, v, dk, dv in zip(range(len(key)), key, value, grad_key, grad_value, strict=True):
        for rows in _row_blocks(query.shape[1], logits.shape[0]):
            q, dy = query[b, rows], grad[b, rows]
            attention = _softmax_rows(q, k.mT, logits)
            dv.addmm_(attention.mT, dy)
            padded, whole = logits[: len(q)], grad_logits[: len(q)]
            dl = whole[:, : len(k)]
            torch.mm(dy, v.mT, out=dl)
            torch.ops.aten._softmax_backward_data.out(whole, padded, -1, wide, grad_input=whole)
            torch.mm(dl, k, out=grad_query[b, rows])
            dk.addmm_(dl.mT, q)
    if shrink != 1:
        grad_query *= shrink
    grads = grad_query, grad_key, grad_value
    return tuple(g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))  # type: ignore[return-value]


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, whose logits would overflow or lose digits."""
    return torch.promote_types(dtype, torch.float32)


def _prevent_overflow(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
    """Shrink the query if a logit could overflow: a softmax that far out is one-hot at any scale.

    Two infinite logits would make their difference, and with it the whole output, NaN.
    """
    if query.numel() == 0 or key.numel() == 0:
        return query, key, 1.0
    low, high = query.aminmax()
    key_low, key_high = key.aminmax()
    largest = max(-low.item(), high.item()) * max(-key_low.item(), key_high.item()) * query.shape[2]
    allowed = torch.finfo(query.dtype).max / 4
    if not largest > allowed:
        return query, key, 1.0
    shrink = allowed / largest
    return query * shrink, key, shrink


def _row_blocks(positions: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, positions)) for start in range(0, positions, rows))


def _row_buffer(query: Tensor, key: Tensor, rows: int) -> Tensor:
    """A buffer for up to `rows` rows of logits (R, M padded to whole cache lines), reused for every block."""
    positions = key.shape[1]
    rows = max(1, min(rows, query.shape[1], MAX_LOGITS // max(positions, 1)))
    buffer = query.new_empty(rows, positions + -positions % ROW_ALIGNMENT)
    buffer[:, positions:] = 0
    return buffer


def _softmax_rows(query: Tensor, key_columns: Tensor, buffer: Tensor) -> Tensor:
    """softmax_j(q_i.k_j) for a block of rows i, (R, M), from keys (D, M), in `buffer`, whose padding ends at zero."""
    positions = key_columns.shape[1]
    rows = buffer[: len(query)]
    logits = rows[:, :positions]
    torch.mm(query, key_columns, out=logits)
    rows[:, positions:] = -torch.inf
    torch.softmax(rows, dim=-1, out=rows)
    return logits


def _output_shape(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return value.new_empty(*query.shape[:2], value.shape[2])


def _gradient_shapes(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    grads: tuple[Tensor, Tensor, Tensor] = torch.ops.dnlnet.attend_backward(grad, *ctx.saved_tensors)
    return grads


def _save_nothing(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    pass


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError(
        "dnlnet's fused attention has a first derivative only; for a second derivative "
        "(gradient penalties, Hessians) call block.forward_explicit(x), which forms the N x M map"
    )


# Registered by hand: `torch.library.custom_op` imports the whole compiler at the first call, which takes seconds.
_library = torch.library.Library("dnlnet", "DEF")
_library.define("attend(Tensor query, Tensor key, Tensor value) -> Tensor")
_library.define("attend_backward(Tensor grad, Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor, Tensor)")
_library.impl("attend", _attend_blocked, "CompositeExplicitAutograd")
_library.impl("attend_backward", _attend_blocked_backward, "CompositeExplicitAutograd")
torch.library.register_autograd("dnlnet::attend", _backward, setup_context=_save_inputs)
torch.library.register_autograd("dnlnet::attend_backward", _no_second_derivative, setup_context=_save_nothing)
torch.library.register_fake("dnlnet::attend", _output_shape)
torch.library.register_fake("dnlnet::attend_backward", _gradient_shapes)


def _matmul_flops(query: torch.Size, key: torch.Size, value: torch.Size) -> tuple[int, int]:
    """FLOPs (2 x MACs) of one product over the embedding width, and over the value width."""
    pairs = 2 * query[0] * query[1] * key[1]
    return pairs * query[2], pairs * value[2]


@register_flop_formula(torch.ops.dnlnet.attend)
def _(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    return sum(_matmul_flops(query, key, value))


@register_flop_formula(torch.ops.dnlnet.attend_backward)
def _(grad: torch.Size, query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    embed, values = _matmul_flops(query, key, value)
    return 3 * embed + 2 * values
