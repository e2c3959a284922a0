"""The blocked attention as PyTorch's operator ``dnlnet::attend``, in any precision and at any magnitude.

It is opaque to `torch.compile`, `torch.export` and the FLOP counter, whatever the shape. The backward pass computes
the softmax again, so only query, key and value are saved.
"""

from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from dnlnet.attention import blocked


def attend_again(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(q.k) v; the backward pass computes the softmax again.

    >>> attend_again(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    out: Tensor = torch.ops.dnlnet.attend(query, key, value)
    return out


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    wide = _compute_dtype(query.dtype)
    key = key.to(wide)
    query, _ = _prevent_overflow(query.to(wide), key)
    return blocked.forward(query, key, value.to(wide))[0].to(value.dtype)


def _attend_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtypes = query.dtype, key.dtype, value.dtype
    wide = _compute_dtype(query.dtype)
    key = key.to(wide)
    query, shrink = _prevent_overflow(query.to(wide), key)
    grads = blocked.backward(grad.to(wide), query, key, value.to(wide))
    if shrink is not None:
        grads[0].mul_(shrink)
    return tuple(g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))  # type: ignore[return-value]


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, whose logits would overflow or lose digits."""
    return torch.promote_types(dtype, torch.float32)


def _prevent_overflow(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None]:
    """Shrink each query row whose logits could overflow: a softmax that far out is one-hot at any scale.

    Two infinite logits would make their difference, and with it the row's output, NaN. All other rows stay as they
    are, so that one image of a batch never changes another. The factors, (B, N, 1), are None if no row needs one.
    """
    if query.numel() == 0 or key.numel() == 0:
        return query, None
    largest = torch.linalg.vector_norm(query, ord=inf, dim=2, keepdim=True)  # (B, N, 1)
    largest_key = torch.linalg.vector_norm(key, ord=inf, dim=(1, 2), keepdim=True)  # (B, 1, 1)
    allowed = torch.finfo(query.dtype).max / 4 / query.shape[2] / largest_key  # of each entry of a query
    over = largest > allowed
    if not over.any():
        return query, None
    shrink = torch.where(over, allowed / largest, 1)
    return torch.where(over, query / largest * allowed, query), shrink


def _output_shape(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return value.new_empty(*query.shape[:2], value.shape[2])


def _gradient_shapes(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
_library.impl("attend", _attend, "CompositeExplicitAutograd")
_library.impl("attend_backward", _attend_backward, "CompositeExplicitAutograd")
torch.library.register_autograd("dnlnet::attend", _differentiate, setup_context=_save_inputs)
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
