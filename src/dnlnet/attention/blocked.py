"""Softmax attention in blocks of queries, out of matrix multiplies and softmaxes, which run on any device.

A block is a few hundred query rows of one image, or several small images at once, against all their keys, so that
every softmax is over a whole row and needs no running maximum. For the backward pass the softmax is kept if all of it
is small enough (`attend_keeping`), and otherwise computed again, block by block.

Sharp attention has weights too small for a normal number. Processors multiply such subnormal numbers far more slowly
than others, so that one in a hundred doubles the time of a matrix multiply: they are set to zero.
"""

# B batch, N query positions, M key positions, D embedding width, C value width, I images and R rows of one block

from math import ceil, log
from typing import Any

import torch
from torch import Tensor

Block = tuple[slice, slice]  # a range of images, and of their rows

# A softmax this small is worth no blocks: the whole batch is computed at once.
AT_ONCE = 2**17
# Rows of queries per block: enough for the matrix multiply to run at full speed ...
FORWARD_ROWS = 768
BACKWARD_ROWS = 512
# ... more where there are few keys, to make a block worth its calls (up to this size there are second derivatives)
MIN_LOGITS = 2**20
# ... but fewer where a buffer would take more than 64 MB in float32. Up to this size the softmax is kept.
MAX_LOGITS = 2**24
# A row of many logits starts at a multiple of 16 floats (one cache line): with 9409 keys the product q.k otherwise
# runs a third slower on some processors.
ROW_ALIGNMENT = 16
MIN_PADDED = 2048
# Of the range of exponents, what weights may take; the rest is left for the gradients that they are multiplied with.
WEIGHT_RANGE = 0.6


def attend_keeping(query: Tensor, key: Tensor, value: Tensor, columns: bool = False) -> Tensor | None:
    """softmax(q.k) v, the softmax kept for the backward pass; None if it is too large to keep, or a logit overflows.

    A row in which a logit overflows is NaN throughout, and NaN does not even equal itself. With `columns`, the output
    lies in memory as (B, C, N).

    >>> attend_keeping(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 5)).shape
    torch.Size([1, 3, 5])
    """
    logits = query.shape[0] * query.shape[1] * key.shape[1]
    if logits > MAX_LOGITS:
        return None
    columns = columns and query.shape[1] > 1 < value.shape[2]  # otherwise the two orders are one
    if logits <= AT_ONCE:
        attention = torch.bmm(query, key.mT).softmax(dim=-1)
        smallest = attention.detach().amin().item() if logits else 1.0
        if smallest != smallest:
            return None
        if smallest >= torch.finfo(query.dtype).tiny:  # otherwise it is worth its blocks, which flush
            return torch.bmm(value.mT, attention.mT).mT if columns else torch.bmm(attention, value)
    if torch.is_grad_enabled():
        out: Tensor = _AttendKeeping.apply(query, key, value, columns)
    else:
        out = forward(query, key, value, columns=columns)[0]
    column = out.select(2, 0)
    return out if torch.equal(column, column) else None


class _AttendKeeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, columns: bool) -> Tensor:
        out, attention = forward(query, key, value, keep=True, columns=columns)
        ctx.save_for_backward(query, key, value, attention)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, attention = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative may follow
            if attention.numel() <= MIN_LOGITS:
                return *_differentiable_backward(grad, query, key, value), None
            grads: tuple[Tensor, Tensor, Tensor] = torch.ops.dnlnet.attend_backward(grad, query, key, value)
            return *grads, None  # of which the operator refuses another
        return *backward(grad, query, key, value, attention), None


def forward(
    query: Tensor, key: Tensor, value: Tensor, *, keep: bool = False, columns: bool = False
) -> tuple[Tensor, Tensor]:
    """y = softmax(q.k) v, (B, N, C), and the buffer: the whole softmax, (B, N, M padded), if it is to be kept."""
    batch, positions, _ = query.shape
    keys, width = value.shape[1:]
    out = query.new_empty(batch, width, positions).mT if columns else query.new_empty(batch, positions, width)
    blocks = _blocks(batch, positions, keys, FORWARD_ROWS)
    buffer = _buffer(query, keys, (slice(0, batch), slice(0, positions)) if keep else blocks[0])
    flush = _may_underflow(query, key)
    for images, rows in blocks:
        q = query[images, rows]
        padded = buffer[images, rows] if keep else buffer[: len(q), : q.shape[1]]
        attention = _softmax_rows(q, key[images], padded, flush)
        torch.bmm(attention, value[images], out=out[images, rows])
    return out, buffer


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """With P = softmax(q.k) and y = P v: dv = P'dy, dP = dy v', dl = P (dP - sum_j P dP), dq = dl k, dk = dl'q."""
    batch, positions, _ = query.shape
    keys = key.shape[1]
    grads = tuple(torch.empty_like(operand, memory_format=torch.contiguous_format) for operand in (query, key, value))
    grad_query, grad_key, grad_value = grads
    blocks = _blocks(batch, positions, keys, BACKWARD_ROWS)
    buffer = _buffer(query, keys, blocks[0]) if kept is None else kept
    grad_buffer = _buffer(query, keys, blocks[0])
    flush = _may_underflow(query, key)
    for images, rows in blocks:
        q, k, v, dy = query[images, rows], key[images], value[images], grad[images, rows]
        if kept is None:
            padded = buffer[: len(q), : q.shape[1]]
            attention = _softmax_rows(q, k, padded, flush)
        else:
            padded = kept[images, rows]
            attention = padded[..., :keys]
        padded_grad = grad_buffer[: len(q), : q.shape[1]]
        dl = padded_grad[..., :keys]
        earlier = rows.start > 0  # rows of this image: their gradients of key and value are there already
        _multiply(attention.mT, dy, grad_value[images], add=earlier)
        torch.bmm(dy, v.mT, out=dl)
        torch._softmax_backward_data(padded_grad, padded, -1, dl.dtype, grad_input=padded_grad)
        if flush:
            _flush_subnormals(padded_grad)
        torch.bmm(dl, k, out=grad_query[images, rows])
        _multiply(dl.mT, q, grad_key[images], add=earlier)
    return grad_query, grad_key, grad_value


def _differentiable_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`backward` with nothing in place."""
    attention = torch.bmm(query, key.mT).softmax(dim=-1)
    products = attention * torch.bmm(grad, value.mT)
    dl = products - attention * products.sum(dim=-1, keepdim=True)
    return torch.bmm(dl, key), torch.bmm(dl.mT, query), torch.bmm(attention.mT, grad)


def _blocks(batch: int, positions: int, keys: int, rows: int) -> list[Block]:
    """Several whole images at once while their rows fit a block, otherwise each image in equal parts."""
    most = max(MAX_LOGITS // max(keys, 1), 1)
    rows = min(max(rows, MIN_LOGITS // max(keys, 1)), most)
    if positions <= rows:
        step = rows // max(positions, 1)
        return [(slice(b, min(b + step, batch)), slice(0, positions)) for b in range(0, batch, step)]
    step = ceil(positions / ceil(positions / rows))
    starts = range(0, positions, step)
    return [(slice(b, b + 1), slice(n, min(n + step, positions))) for b in range(batch) for n in starts]


def _buffer(query: Tensor, keys: int, block: Block) -> Tensor:
    """Room for the logits of a block, (I, R, M), with M padded to whole cache lines if there are many."""
    padding = -keys % ROW_ALIGNMENT if keys >= MIN_PADDED else 0
    buffer = query.new_empty(block[0].stop, block[1].stop, keys + padding)
    if padding:
        buffer[..., keys:] = 0
    return buffer


def _may_underflow(query: Tensor, key: Tensor) -> bool:
    """Whether weights, or their products with gradients, could be subnormal.

    A weight is at least exp(-spread) / M, and the spread of a row of logits is at most 2 max|q_i| max|k_j|.
    """
    if query.numel() == 0 or key.numel() == 0:
        return False
    longest = [torch.linalg.vector_norm(operand, dim=2).amax().item() for operand in (query, key)]
    spread = 2 * longest[0] * longest[1] + log(key.shape[1])
    return not spread < -WEIGHT_RANGE * log(torch.finfo(query.dtype).tiny)


def _flush_subnormals(numbers: Tensor) -> None:
    torch.hardshrink(numbers, torch.finfo(numbers.dtype).tiny, out=numbers)


def _softmax_rows(query: Tensor, key: Tensor, padded: Tensor, flush: bool) -> Tensor:
    """softmax_j(q_i.k_j) for the rows i of a block, (I, R, M), in `padded`, whose padding ends at zero."""
    keys = key.shape[1]
    logits = padded[..., :keys]
    torch.bmm(query, key.mT, out=logits)
    if keys < padded.shape[2]:
        padded[..., keys:] = -torch.inf
    torch.softmax(padded, dim=-1, out=padded)
    if flush:
        _flush_subnormals(padded)
    return logits


def _multiply(left: Tensor, right: Tensor, out: Tensor, *, add: bool) -> None:
    """out = left right, or out += left right."""
    if add:
        torch.baddbmm(out, left, right, out=out)
    else:
        torch.bmm(left, right, out=out)
