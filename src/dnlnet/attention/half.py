"""Softmax attention in bfloat16, in blocks of queries, for processors with instructions for it.

Products and softmax accumulate in float32 and round their results to eight bits, so a logit of 100 could be wrong by
0.25. Logits near zero are rounded least, and a softmax ignores a shift of a whole row. So each row is shifted by its
mean logit under the attention, which a few keys estimate. The shift is part of the product, before it is rounded:
[q_i, -c_i, 1].[k_j, 1, 0] = q_i.k_j - c_i. The third number masks keys that fill up a row: theirs are [0, 0, MASKED].

Subnormal weights need no care: these instructions treat them as zeros.
"""

# B batch, N query positions, M key positions (filled up in operands and buffers), D embedding width, C value width,
# S sampled keys, I images and R rows of one block

from collections.abc import Mapping
from functools import cache
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.attention import blocked

# Rows of queries per block, as in `blocked`, and its smallest number of logits. Fewer need less memory; the backward
# pass needs more for speed, because each block adds to the gradients of all keys and values.
FORWARD_ROWS = 256
BACKWARD_ROWS = 512
MIN_LOGITS = 2**21
# Rows of logits are filled up to whole cache lines.
ROW_ALIGNMENT = 32
# One key in 32 estimates the mean logit of a row, and at least 64 do.
SAMPLING = 32
MIN_SAMPLE = 64
GOLDEN_RATIO = (sqrt(5) - 1) / 2
MASKED = -3e38  # below every logit, since `blocked.bound_logits` keeps them above a fourth of the range
CHANNELS_PER_SUM = 64  # fewer bytes than the C library would return to the system, and ask for again

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # x86, x86, ARM, ARM
_softmax_backward: Any = getattr(torch.ops.aten, "_softmax_backward_data", None)  # not a public name


@cache
def has_bfloat16() -> bool:
    """Return whether PyTorch uses bfloat16 instructions of this CPU. It emulates them otherwise, and is slower."""
    find = getattr(torch.cpu, "get_capabilities", None)  # newer than the oldest PyTorch we support
    capabilities: Mapping[str, Any] = {} if find is None else find()
    found = any(capabilities.get(name, False) for name in _INSTRUCTIONS)
    return found and torch.backends.mkldnn.is_available()


def accepts(*operands: Tensor) -> bool:
    """Return whether this module computes attention of these operands; `blocked` computes the rest in float32."""
    suited = all(operand.dtype == torch.bfloat16 and operand.device.type == "cpu" for operand in operands)
    return suited and has_bfloat16() and _softmax_backward is not None


def attend(
    query: Tensor, key: Tensor, value: Tensor, keep: bool = False, columns: bool = False
) -> tuple[Tensor, Tensor]:
    """`blocked.attend` in bfloat16."""
    batch, positions, _ = query.shape
    keys, width = value.shape[1:]
    query, _, _ = blocked.bound_logits(query, key)
    extended, sample = _extend(key), sample_keys(key)
    value = F.pad(value, (0, 0, 0, padded_keys(keys) - keys))
    out = value.new_empty_strided((batch, positions, width), blocked.output_strides(positions, width, columns))
    blocks = blocked.split_blocks(batch, positions, keys, FORWARD_ROWS, MIN_LOGITS)
    buffer = _buffer(query, keys, (slice(0, batch), slice(0, positions)) if keep else blocks[0])
    for images, rows in blocks:
        q = query[images, rows]
        attention = buffer[images, rows] if keep else buffer[: len(q), : q.shape[1]]
        _softmax_rows(q, extended[images], sample[images], attention)
        if columns:  # a product takes hundreds of times longer to write columns than a copy does
            out[images, rows] = torch.bmm(attention, value[images], out=value.new_empty(*q.shape[:2], width))
        else:
            torch.bmm(attention, value[images], out=out[images, rows])
    return out, buffer if keep else query.new_empty(0, dtype=torch.float32)


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, softmax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`blocked.attend_backward` in bfloat16."""
    batch, positions, _ = query.shape
    keys = key.shape[1]
    query, shrink, _ = blocked.bound_logits(query, key)
    extended, sample = _extend(key), sample_keys(key)
    blocks = blocked.split_blocks(batch, positions, keys, BACKWARD_ROWS, MIN_LOGITS)
    split = blocks[0][1].stop < positions  # each image into several blocks
    grad_query = torch.empty_like(query, memory_format=torch.contiguous_format)
    kept = softmax.numel() > 0
    grad_key = _empty_sum(key, split)
    if kept:
        by_columns = value.new_empty(batch, value.shape[2], softmax.shape[2])
        grad_value = torch.bmm(grad.mT, softmax, out=by_columns).mT
    else:
        grad_value = _empty_sum(value, split)
    buffer = softmax if kept else _buffer(query, keys, blocks[0])
    grad_buffer = _buffer(query, keys, blocks[0])
    grad_buffer[..., keys:] = 0
    for images, rows in blocks:
        q, dy = query[images, rows], grad[images, rows]
        attention = buffer[images, rows] if kept else buffer[: len(q), : q.shape[1]]
        if not kept:
            _softmax_rows(q, extended[images], sample[images], attention)
            _multiply_transposed(attention, dy, grad_value[images], split, rows.start)
        dl = grad_buffer[: len(q), : q.shape[1]]
        torch.bmm(dy, value[images].mT, out=dl[..., :keys])
        _softmax_backward.out(dl, attention, -1, dl.dtype, grad_input=dl)  # P (dP - sum_j P dP), rounded once
        dq = torch.bmm(dl, extended[images], out=q.new_empty(*q.shape[:2], extended.shape[2]))
        grad_query[images, rows] = dq[..., : q.shape[2]]
        _multiply_transposed(dl, q, grad_key[images], split, rows.start)
    if shrink is not None:
        grad_query.mul_(shrink)
    del buffer, grad_buffer
    dk, dv = (g[:, :keys].to(query.dtype).contiguous() for g in (grad_key, grad_value))
    return grad_query, dk, dv


def padded_keys(keys: int) -> int:
    """Return the length of a row of logits in memory.

    >>> padded_keys(100), padded_keys(9409)
    (128, 9440)
    """
    return keys + -keys % ROW_ALIGNMENT


def _buffer(query: Tensor, keys: int, block: blocked.Block) -> Tensor:
    return query.new_empty(block[0].stop, block[1].stop, padded_keys(keys))


def _extend(key: Tensor) -> Tensor:
    """Return the keys [k_j, 1, 0] and [0, 0, MASKED], (B, M, D + 2)."""
    batch, keys, width = key.shape
    extended = key.new_zeros(batch, padded_keys(keys), width + 2)
    extended[:, :keys, :width] = key
    extended[:, :keys, width] = 1
    extended[:, keys:, width + 1] = MASKED
    return extended


def sample_keys(key: Tensor) -> Tensor:
    """Return a few keys, (B, S, D), at multiples of the golden ratio, which are spread over a map of any width."""
    keys = key.shape[1]
    count = min(keys, max(MIN_SAMPLE, keys // SAMPLING))
    shares = torch.arange(count, dtype=torch.float64).mul_(GOLDEN_RATIO).frac_()
    return key[:, shares.mul_(keys).long()]


def _softmax_rows(query: Tensor, extended: Tensor, sample: Tensor, out: Tensor) -> None:
    """softmax_j(q_i.k_j) for the rows i of a block, (I, R, M), zero for the keys that fill up a row."""
    sampled = torch.bmm(query, sample.mT, out=query.new_empty(*query.shape[:2], sample.shape[1]))
    shift = (sampled.softmax(dim=-1) * sampled).sum(dim=-1, keepdim=True).neg_()
    torch.bmm(torch.cat([query, shift, torch.ones_like(shift)], dim=2), extended.mT, out=out)
    torch.softmax(out, dim=-1, out=out)


def _empty_sum(operand: Tensor, split: bool) -> Tensor:
    """Allocate the gradient of keys or values, (B, M, D or C): over several blocks a float32 sum, in columns."""
    batch, keys, width = operand.shape
    if not split:
        return operand.new_empty(batch, padded_keys(keys), width)
    wide = torch.promote_types(operand.dtype, torch.float32)
    return operand.new_empty(batch, width, padded_keys(keys), dtype=wide).mT


def _multiply_transposed(left: Tensor, right: Tensor, out: Tensor, split: bool, start: int) -> None:
    """out = left' right, or out += left' right if an earlier block of the same image has written it."""
    if not split:
        torch.bmm(left.mT, right, out=out)
        return
    # (right' left)' reads the larger factor in the order of memory.
    product = torch.bmm(right.mT, left, out=left.new_empty(out.mT.shape))
    for total, part in zip(*(some.split(CHANNELS_PER_SUM, dim=1) for some in (out.mT, product)), strict=True):
        total.add_(part) if start > 0 else total.copy_(part)
