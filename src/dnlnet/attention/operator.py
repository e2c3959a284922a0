"""Attention whose backward pass computes the softmax again, as PyTorch's operator ``dnlnet::attend``.

It is opaque to `torch.compile`, `torch.export` and the FLOP counter, whatever the shape, and takes any precision and
any magnitude. Large maps are computed in tiles, others and extreme numbers in blocks of whole rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from dnlnet.attention import blocked, tiles

MIN_TILED = 8192  # queries and keys of an image; with 4225, blocks of whole rows were faster


def attend_again(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(q.k) v; the backward pass computes the softmax again.

    >>> attend_again(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    out: Tensor = torch.ops.dnlnet.attend(query, key, value)[0]
    return out


def _attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    wide = _compute_dtype(query.dtype)
    q, k, v = query.to(wide), key.to(wide), value.to(wide)
    bound = _tile_bound(q, k, v)
    if bound is not None:
        out, logsumexp = tiles.forward(q, k, v, bound)
    else:
        q, k, _ = _prevent_overflow(q, k)
        out, logsumexp = blocked.forward(q, k, v)[0], q.new_zeros(*q.shape[:2], 1)
    return out.to(value.dtype), logsumexp


def _attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    wide = _compute_dtype(query.dtype)
    q, k, v, dy = query.to(wide), key.to(wide), value.to(wide), grad.to(wide)
    if _tile_bound(q, k, v) is not None:
        grads = tiles.backward(dy, q, k, v, out.to(wide), logsumexp)
    else:
        q, k, shrink = _prevent_overflow(q, k)
        grads = blocked.backward(dy, q, k, v)
        if shrink != 1:
            grads[0].mul_(shrink)
    dtypes = query.dtype, key.dtype, value.dtype
    return tuple(g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))  # type: ignore[return-value]


def _tile_bound(query: Tensor, key: Tensor, value: Tensor) -> float | None:
    """A bound of the logits if they and the values are of a size and magnitude for tiles; the same in both passes."""
    if key.shape[1] < MIN_TILED or query.shape[1] < MIN_TILED or 0 in (*query.shape, *value.shape):
        return None
    bound = tiles.largest_logit(query, key)
    moderate = bound <= tiles.LARGEST_LOGIT and _magnitude(value) <= tiles.LARGEST_VALUE
    return bound if moderate else None


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, whose logits would overflow or lose digits."""
    return torch.promote_types(dtype, torch.float32)


def _prevent_overflow(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
    """Shrink the query if a logit could overflow: a softmax that far out is one-hot at any scale.

    Two infinite logits would make their difference, and with it the whole output, NaN.
    """
    if query.numel() == 0 or key.numel() == 0:
        return query, key, 1.0
    largest = _magnitude(query) * _magnitude(key) * query.shape[2]
    allowed = torch.finfo(query.dtype).max / 4
    if not largest > allowed:
        return query, key, 1.0
    shrink = allowed / largest
    return query * shrink, key, shrink


def _magnitude(operand: Tensor) -> float:
    """The largest absolute value, without a tensor of absolute values."""
    low, high = operand.aminmax()
    return max(-low.item(), high.item())


def _output_shapes(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    logsumexp = query.new_empty(*query.shape[:2], 1, dtype=_compute_dtype(query.dtype))
    return value.new_empty(*query.shape[:2], value.shape[2]), logsumexp


def _gradient_shapes(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
_library.define("attend(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor)")
_library.define(
    "attend_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp)"
    " -> (Tensor, Tensor, Tensor)"
)
_library.impl("attend", _attend, "CompositeExplicitAutograd")
_library.impl("attend_backward", _attend_backward, "CompositeExplicitAutograd")
torch.library.register_autograd("dnlnet::attend", _differentiate, setup_context=_save)
torch.library.register_autograd("dnlnet::attend_backward", _no_second_derivative, setup_context=_save_nothing)
torch.library.register_fake("dnlnet::attend", _output_shapes)
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
