"""One recorded attention: queries, keys, and the steps from their product to the softmax."""

# N queries, M keys, D width, R chosen rows; leading dimensions "..." are those of the softmax, mostly batch and heads

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Maps logits (..., R, M) of some rows to the next logits; rows None stands for all rows.
Step = Callable[[Tensor, Tensor | None], Tensor]
NEVER = -1e4  # a bias below this hides the key
BLOCK = 2**20  # numbers in a block of rows: 4 MB in single precision


@dataclass(frozen=True)
class AttentionCall:
    """One attention, softmax(steps(query.key)).

    Args:
        name: Name of the module that computed it.
        query: (..., N, D).
        key: (..., M, D). It may have fewer heads, each shared by several heads of the query.
        steps: Operations between the product and the softmax.
        factor: Scale of the product: one number, or one per head.
        hidden_keys: (..., M), True for keys that no query may see. None if every key is visible to some query.
        enclosing: Name and input shape of each running module, outermost first.
    """

    name: str
    query: Tensor
    key: Tensor
    steps: tuple[Step, ...] = ()
    factor: float | Tensor = 1.0
    hidden_keys: Tensor | None = None
    enclosing: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def logits(self, rows: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        """Return the input of the softmax for all or some rows, optionally with other queries."""
        query = self.query if query is None else query
        if rows is not None:
            query = query.index_select(-2, rows)
        logits = query @ repeat_key_heads(self.key, query).mT
        for step in self.steps:
            logits = step(logits, rows)
        return logits

    def split_heads(self, heads: int, first: bool = False) -> "AttentionCall":
        """Return the same attention with leading dimensions (B, H).

        Args:
            heads: Number of heads, used if heads and batch share a dimension.
            first: Heads come before further dimensions such as windows: (B, H, L), not (B, L, H).
        """
        *leading, count, width = self.query.shape
        if len(leading) == 2:
            return self
        if first and len(leading) == 3:
            hidden = self.hidden_keys
            moved = replace(
                self,
                query=self.query.transpose(1, 2),
                key=self.key.transpose(1, 2),
                steps=(reshape_leading((leading[0], leading[2], leading[1])), _swap, *self.steps, _swap),
                hidden_keys=None if hidden is None else hidden.expand(*leading, -1).transpose(1, 2),
            )
            return moved.split_heads(heads)
        number = leading[-1] if len(leading) > 2 else heads if leading[0] % heads == 0 else 1
        split = (math.prod(leading) // number, number)
        return replace(
            self.reshape_hidden_keys(leading, split),
            query=self.query.reshape(*split, count, width),
            key=self.key.reshape(*split, *self.key.shape[-2:]),
            steps=(reshape_leading(leading), *self.steps, reshape_leading(split)),
        )

    def head_numbers(self, heads: int, first: bool = False) -> Tensor:
        """Return the head number at each place of the leading dimensions, up to broadcasting; see `split_heads`."""
        leading = self.query.shape[:-2]
        if len(leading) == 1:
            return torch.arange(leading[0]) % (heads if leading[0] % heads == 0 else 1)
        if first and len(leading) == 3:
            return torch.arange(leading[1])[:, None]
        return torch.arange(leading[-1])

    def reshape_hidden_keys(self, before: Sequence[int], after: Sequence[int]) -> "AttentionCall":
        """Return the same attention with `hidden_keys` reshaped from one leading shape to another."""
        if self.hidden_keys is None:
            return self
        count = self.hidden_keys.shape[-1]
        return replace(self, hidden_keys=self.hidden_keys.broadcast_to(*before, count).reshape(*after, count))

    def with_bias(self, bias: Tensor) -> "AttentionCall":
        """Return the attention with a bias, or a mask of large negative numbers, added to the logits."""
        bias = bias.detach()

        def step(logits: Tensor, rows: Tensor | None) -> Tensor:
            return logits + _select(bias, rows)

        return replace(self, steps=(*self.steps, step))._hide(bias < NEVER)

    def with_mask(self, mask: Tensor, value: Any = -math.inf) -> "AttentionCall":
        """Return the attention with `value` as the logit wherever the mask is True."""
        value = float(value)

        def step(logits: Tensor, rows: Tensor | None) -> Tensor:
            return logits.masked_fill(_select(mask, rows), value)

        masked = replace(self, steps=(*self.steps, step))
        return masked._hide(mask) if value < NEVER else masked

    def _hide(self, mask: Tensor) -> "AttentionCall":
        hidden = mask if mask.dim() < 2 else mask.all(dim=-2)
        if not hidden.dim() or not bool(hidden.any()):
            return self
        return replace(self, hidden_keys=hidden if self.hidden_keys is None else self.hidden_keys | hidden)


def repeat_key_heads(key: Tensor, query: Tensor) -> Tensor:
    """Repeat the key's heads until there are as many as the query has."""
    if key.dim() < 3 or key.shape[-3] == query.shape[-3]:
        return key
    return key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)


def row_blocks(count: int, width: int) -> Iterator[Tensor]:
    """Split the row numbers 0..count - 1 into blocks of about `BLOCK` numbers, for rows of `width` numbers.

    >>> [len(rows) for rows in row_blocks(5, BLOCK // 2)]
    [2, 2, 1]
    """
    yield from torch.arange(count).split(max(1, BLOCK // width))


# ---- steps


def multiply(factor: float | Tensor) -> Step:
    """Multiply by one number, or by one per head."""
    return lambda logits, rows: logits * factor


def reshape_leading(leading: Sequence[int]) -> Step:
    """Reshape the leading dimensions."""
    return lambda logits, rows: logits.reshape(*leading, *logits.shape[-2:])


def hide_later(logits: Tensor, rows: Tensor | None) -> Tensor:
    """Hide the keys behind each query's own position."""
    count, key_count = logits.shape[-2:]
    query = torch.arange(count, device=logits.device) if rows is None else rows
    return logits.masked_fill(torch.arange(key_count, device=logits.device) > query[:, None], -math.inf)


def _swap(logits: Tensor, rows: Tensor | None) -> Tensor:
    """Swap the leading dimensions (B, L, H) and (B, H, L)."""
    return logits.transpose(1, 2)


def _select(given: Tensor, rows: Tensor | None) -> Tensor:
    if rows is None or given.dim() < 2 or given.shape[-2] == 1:
        return given
    return given.index_select(-2, rows)
