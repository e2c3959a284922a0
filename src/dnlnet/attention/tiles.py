"""Softmax attention in tiles: a part of the queries against a part of the keys, small enough for a core's own cache.

What a tile holds is made by one matrix multiply, passed through the exponential and used by the next multiply before
it leaves the cache; whole rows of logits would go to memory and back between these steps. Weights are exp(l - r),
with a reference r of each row that is close enough to its largest logit; they are divided by their sum at the end,
in the output. The backward pass computes them again from the logarithm of that sum, and sum_j P_ij dP_ij is dy_i.y_i.
"""

# B batch, N query positions, M key positions, D embedding width, C value width

from collections.abc import Iterator
from math import ceil

import torch
from torch import Tensor

# Queries and keys of a tile: 2 MB in float32, half of it for each of two threads. Two tiles in the backward pass.
ROWS, BACKWARD_ROWS, KEYS = 1024, 768, 512
# The largest exponent: logits that differ less from their reference need no other.
SPREAD = 32.0
# Larger logits have lost the digits that let the backward pass compute them again, and larger values would overflow
# when multiplied with exp(32).
LARGEST_LOGIT = 1e3
LARGEST_VALUE = 1e15


def largest_logit(query: Tensor, key: Tensor) -> float:
    """A bound of |q_i.k_j|: the product of the largest norms.

    >>> largest_logit(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]), torch.tensor([[[0.0, 2.0]]]))
    10.0
    """
    longest = [torch.linalg.vector_norm(operand, dim=2).amax() for operand in (query, key)]
    return float(longest[0] * longest[1])


def forward(query: Tensor, key: Tensor, value: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """y = softmax(q.k) v, (B, N, C), and log sum_j exp(q_i.k_j), (B, N, 1), of logits within +- bound."""
    batch, positions, _ = query.shape
    keys, width = value.shape[1:]
    out, logsumexp = query.new_empty(batch, positions, width), query.new_empty(batch, positions, 1)
    room = query.new_empty(min(positions, ROWS) * min(keys, KEYS))
    for image in range(batch):
        for rows in _parts(positions, ROWS):
            q, y = query[image, rows], out[image, rows]
            reference, total = (y.new_zeros(len(q), 1) for _ in range(2))
            for part in _parts(keys, KEYS):
                weights = _product(q, key[image, part], room)
                if bound > SPREAD:
                    _raise_reference(reference, weights.amax(dim=1, keepdim=True), (y, total), first=part.start == 0)
                    weights.sub_(reference)
                weights.exp_()
                total += weights.sum(dim=1, keepdim=True)
                _multiply(weights, value[image, part], y, add=part.start > 0)
            y /= total
            torch.add(total.log_(), reference, out=logsumexp[image, rows])
    return out, logsumexp


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """With P = softmax(q.k) and y = P v: dv = P'dy, dP = dy v', dl = P (dP - dy.y), dq = dl k, dk = dl'q."""
    batch, positions, _ = query.shape
    keys = key.shape[1]
    grads = tuple(torch.empty_like(operand, memory_format=torch.contiguous_format) for operand in (query, key, value))
    grad_query, grad_key, grad_value = grads
    room, grad_room = (query.new_empty(min(positions, BACKWARD_ROWS) * min(keys, KEYS)) for _ in range(2))
    for image in range(batch):
        for rows in _parts(positions, BACKWARD_ROWS):
            q, dy = query[image, rows], grad[image, rows].contiguous()  # it is read once for every tile
            mean = (dy * out[image, rows]).sum(dim=1, keepdim=True)  # sum_j P_ij dP_ij
            for part in _parts(keys, KEYS):
                k, v = key[image, part], value[image, part]
                weights = _product(q, k, room).sub_(logsumexp[image, rows]).exp_()
                _multiply(weights.mT, dy, grad_value[image, part], add=rows.start > 0)
                dl = _product(dy, v, grad_room).sub_(mean).mul_(weights)
                _multiply(dl, k, grad_query[image, rows], add=part.start > 0)
                _multiply(dl.mT, q, grad_key[image, part], add=rows.start > 0)
    return grad_query, grad_key, grad_value


def _raise_reference(reference: Tensor, largest: Tensor, sums: tuple[Tensor, ...], *, first: bool) -> None:
    """Raise the reference of rows whose logits may be too large for it, and shrink what was summed with it."""
    if first:
        reference.copy_(largest)
    elif (largest > reference + SPREAD).any():
        higher = torch.maximum(reference, largest)
        for summed in sums:
            summed *= torch.exp(reference - higher)
        reference.copy_(higher)


def _parts(count: int, size: int) -> Iterator[slice]:
    """Ranges of equal size, as few as there can be with at most `size` in each.

    >>> [(part.start, part.stop) for part in _parts(10, 4)]
    [(0, 4), (4, 8), (8, 10)]
    """
    step = ceil(count / ceil(count / size)) if count else 1
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _product(rows: Tensor, columns: Tensor, room: Tensor) -> Tensor:
    """rows columns', in memory that is there."""
    out = room[: len(rows) * len(columns)].view(len(rows), len(columns))
    return torch.mm(rows, columns.mT, out=out)


def _multiply(left: Tensor, right: Tensor, out: Tensor, *, add: bool) -> None:
    """out = left right, or out += left right."""
    if add:
        torch.addmm(out, left, right, out=out)
    else:
        torch.mm(left, right, out=out)
