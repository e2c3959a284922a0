"""Softmax attention in blocks of queries, on any device, with memory linear in the number of positions.

A block is a few hundred query rows of one image, or several small images at once, against all their keys. Every
softmax therefore covers whole rows and needs no running maximum. Half precision is computed in float32, also under
autocast, which ignores operations that write into a given tensor. Where processors have instructions for bfloat16,
`dnlnet.attention.half` replaces this module.

Sharp attention has weights too small for a normal number. Processors multiply such subnormal numbers far more slowly:
one in a hundred doubles the time of a matrix multiply. They are set to zero.
"""

# B batch, N query positions, M key positions, D embedding width, C value width, I images and R rows of one block

from math import ceil, inf, log

import torch
from torch import Tensor

Block = tuple[slice, slice]  # a range of images, and of their rows

# Rows of queries per block: enough for the matrix multiply to run at full speed ...
FORWARD_ROWS = 768
BACKWARD_ROWS = 512
# ... more where there are few keys, so that a block is worth its calls ...
MIN_LOGITS = 2**20
# ... but fewer where a buffer would take more than 64 MB in float32. A softmax up to this size may be kept.
MAX_LOGITS = 2**24
# A row of many logits starts at a multiple of 16 floats (one cache line): with 9409 keys the product q.k otherwise
# runs a third slower on some processors.
ROW_ALIGNMENT = 16
MIN_PADDED = 2048
# Share of the range of exponents that weights may take. The rest is for the gradients that multiply them.
WEIGHT_RANGE = 0.6


def attend(
    query: Tensor, key: Tensor, value: Tensor, keep: bool = False, columns: bool = False
) -> tuple[Tensor, Tensor]:
    """y = softmax(q.k) v.

    Args:
        query: (B, N, D)
        key: (B, M, D)
        value: (B, M, C)
        keep: return the softmax too.
        columns: lay out y in memory as (B, C, N).

    Returns:
        y, (B, N, C), and the softmax, (B, N, M padded), which is empty unless it is kept.
    """
    batch, positions, _ = query.shape
    keys, width = value.shape[1:]
    wide, dtype = _compute_dtype(query), value.dtype
    query, key, value = query.to(wide), key.to(wide), value.to(wide)
    query, _, sharp = bound_logits(query, key)
    out = value.new_empty_strided((batch, positions, width), output_strides(positions, width, columns))
    blocks = split_blocks(batch, positions, keys, FORWARD_ROWS, MIN_LOGITS)
    buffer = _buffer(query, keys, (slice(0, batch), slice(0, positions)) if keep else blocks[0])
    for images, rows in blocks:
        q = query[images, rows]
        padded = buffer[images, rows] if keep else buffer[: len(q), : q.shape[1]]
        attention = _softmax_rows(q, key[images], padded, sharp)
        torch.bmm(attention, value[images], out=out[images, rows])
    return out.to(dtype), buffer if keep else query.new_empty(0)


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, softmax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """With P = softmax(q.k) and y = P v: dv = P'dy, dP = dy v', dl = P (dP - sum_j P dP), dq = dl k, dk = dl'q.

    An empty `softmax` is computed again, block by block.
    """
    batch, positions, _ = query.shape
    keys = key.shape[1]
    wide, dtypes = _compute_dtype(query), (query.dtype, key.dtype, value.dtype)
    grad, query, key, value = (operand.to(wide) for operand in (grad, query, key, value))
    query, shrink, sharp = bound_logits(query, key)
    grads = tuple(torch.empty_like(operand, memory_format=torch.contiguous_format) for operand in (query, key, value))
    grad_query, grad_key, grad_value = grads
    blocks = split_blocks(batch, positions, keys, BACKWARD_ROWS, MIN_LOGITS)
    kept = softmax.numel() > 0
    buffer = softmax if kept else _buffer(query, keys, blocks[0])
    grad_buffer = _buffer(query, keys, blocks[0])
    for images, rows in blocks:
        q, k, v, dy = query[images, rows], key[images], value[images], grad[images, rows]
        padded = buffer[images, rows] if kept else buffer[: len(q), : q.shape[1]]
        attention = padded[..., :keys] if kept else _softmax_rows(q, k, padded, sharp)
        padded_grad = grad_buffer[: len(q), : q.shape[1]]
        dl = padded_grad[..., :keys]
        later = rows.start > 0  # earlier rows of this image have written gradients of its keys and values
        _multiply(attention.mT, dy, grad_value[images], add=later)
        torch.bmm(dy, v.mT, out=dl)
        _softmax_backward(padded, padded_grad)
        if sharp:
            _flush_subnormals(padded_grad)
        torch.bmm(dl, k, out=grad_query[images, rows])
        _multiply(dl.mT, q, grad_key[images], add=later)
    if shrink is not None:
        grad_query.mul_(shrink)
    dq, dk, dv = (g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))
    return dq, dk, dv


def differentiable_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`attend_backward` in operations that autograd follows, forming the N x M attention."""
    wide, dtypes = _compute_dtype(query), (query.dtype, key.dtype, value.dtype)
    with torch.autocast(query.device.type, enabled=False):
        grad, query, key, value = (operand.to(wide) for operand in (grad, query, key, value))
        query, shrink, _ = bound_logits(query, key)
        attention = torch.bmm(query, key.mT).softmax(dim=-1)
        products = attention * torch.bmm(grad, value.mT)
        dl = products - attention * products.sum(dim=-1, keepdim=True)
        grads = torch.bmm(dl, key), torch.bmm(dl.mT, query), torch.bmm(attention.mT, grad)
    dq, dk, dv = (g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))
    return dq if shrink is None else dq * shrink, dk, dv


def output_strides(positions: int, width: int, columns: bool) -> tuple[int, int, int]:
    """Return the strides of y, (B, N, C), whose rows or columns lie together in memory."""
    return (positions * width, 1, positions) if columns else (positions * width, width, 1)


def padded_keys(keys: int) -> int:
    """Return the length of a row of logits in memory: many are padded to whole cache lines.

    >>> padded_keys(100), padded_keys(9409)
    (100, 9424)
    """
    return keys + (-keys % ROW_ALIGNMENT if keys >= MIN_PADDED else 0)


def _compute_dtype(query: Tensor) -> torch.dtype:
    """Return float32 for half precision, whose logits would overflow or lose digits."""
    return torch.promote_types(query.dtype, torch.float32)


def split_blocks(batch: int, positions: int, keys: int, rows: int, least: int) -> list[Block]:
    """Split the rows of a batch into blocks of `rows`, or of more where a block would have under `least` logits.

    A block holds several whole images if they fit. Otherwise each image is split into equal parts.
    """
    most = max(MAX_LOGITS // max(keys, 1), 1)
    rows = min(max(rows, least // max(keys, 1)), most)
    if positions <= rows:
        step = rows // max(positions, 1)
        return [(slice(b, min(b + step, batch)), slice(0, positions)) for b in range(0, max(batch, 1), step)]
    step = ceil(positions / ceil(positions / rows))
    starts = range(0, positions, step)
    return [(slice(b, b + 1), slice(n, min(n + step, positions))) for b in range(batch) for n in starts]


def _buffer(query: Tensor, keys: int, block: Block) -> Tensor:
    """Allocate the logits of a block, (I, R, M padded), with zeros in the padding."""
    buffer = query.new_empty(block[0].stop, block[1].stop, padded_keys(keys))
    buffer[..., keys:] = 0
    return buffer


def bound_logits(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None, bool]:
    """Shrink queries whose logits could overflow; return them, the factors, and whether the attention is sharp.

    It is sharp if weights, or their products with gradients, could be subnormal. A weight is at least
    exp(-spread) / M, and the spread of a row of logits is at most 2 max|q_i| max|k_j|.
    """
    if query.numel() == 0 or key.numel() == 0:
        return query, None, False
    if query.device.type != "cpu":  # it would wait for the device to look at the numbers
        return *_shrink_overflowing(query, key), True
    longest = [torch.linalg.vector_norm(operand.detach(), dim=2).amax().item() for operand in (query, key)]
    largest = longest[0] * longest[1]
    limits = torch.finfo(query.dtype)
    if 2 * largest + log(key.shape[1]) < -WEIGHT_RANGE * log(limits.tiny):
        return query, None, False
    if 4 * query.shape[2] * largest < limits.max:
        return query, None, True
    return *_shrink_overflowing(query, key), True


def _shrink_overflowing(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None]:
    """Shrink each query row whose logits could overflow: a softmax that far out is one-hot at any scale.

    Two infinite logits would make their difference, and with it the row's output, NaN. All other rows stay as they
    are, so that one image of a batch never changes another. The factors, (B, N, 1), are None if no row needs one.
    """
    largest = torch.linalg.vector_norm(query.detach(), ord=inf, dim=2, keepdim=True)  # (B, N, 1)
    largest_key = torch.linalg.vector_norm(key.detach(), ord=inf, dim=(1, 2), keepdim=True)  # (B, 1, 1)
    allowed = torch.finfo(query.dtype).max / 4 / query.shape[2] / largest_key  # for each entry of a query
    over = largest > allowed
    if query.is_cpu and not over.any():
        return query, None
    divisor, factor = (torch.where(over, size, 1) for size in (largest, allowed))
    return query / divisor * factor, factor / divisor


def _flush_subnormals(numbers: Tensor) -> None:
    torch.hardshrink(numbers, torch.finfo(numbers.dtype).tiny, out=numbers)


def _softmax_rows(query: Tensor, key: Tensor, padded: Tensor, sharp: bool) -> Tensor:
    """softmax_j(q_i.k_j) for the rows i of a block, (I, R, M), in `padded`, whose padding ends at zero."""
    keys = key.shape[1]
    logits = padded[..., :keys]
    torch.bmm(query, key.mT, out=logits)
    if keys < padded.shape[2]:
        padded[..., keys:] = -torch.inf
    torch.softmax(padded, dim=-1, out=padded)
    if sharp:
        _flush_subnormals(padded)
    return logits


def _softmax_backward(softmax: Tensor, grad: Tensor) -> None:
    """P (dP - sum_j P dP), in place of dP."""
    grad.mul_(softmax)
    torch.addcmul(grad, softmax, grad.sum(dim=-1, keepdim=True), value=-1, out=grad)


def _multiply(left: Tensor, right: Tensor, out: Tensor, *, add: bool) -> None:
    """out = left right, or out += left right."""
    if add:
        torch.baddbmm(out, left, right, out=out)
    else:
        torch.bmm(left, right, out=out)
