"""An attention as it was seen: queries, keys, and the steps from their product to the softmax."""

# N queries, M keys, D width, R chosen rows; leading dimensions "..." are those of the softmax, mostly batch and heads

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# From logits (..., R, M) of some rows to the next; None is all rows.
Step = Callable[[Tensor, Tensor | None], Tensor]
NEVER = -1e4  # added to a logit, it hides the key
BLOCK = 2**20  # numbers of a block of rows: 4 MB in single precision


@dataclass(frozen=True)
class Seen:
    """An attention: softmax(steps(query.key)).

    Args:
        name: of the module it ran in.
        query: (..., N, D).
        key: (..., M, D); its heads may be fewer, each shared by several of the query's.
        steps: what happens to the products before the softmax.
        factor: what they are multiplied with, one number or one for each head.
        hides: True for keys that no query may see, (..., M); None if all may be seen.
        around: the modules that were running, outermost first, by name, with the shapes of their inputs.
    """

    name: str
    query: Tensor
    key: Tensor
    steps: tuple[Step, ...] = ()
    factor: float | Tensor = 1.0
    hides: Tensor | None = None
    around: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def logits(self, rows: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        """What the softmax is taken of, for all queries or for some rows, perhaps with other queries."""
        asked = self.query if query is None else query
        if rows is not None:
            asked = asked.index_select(-2, rows)
        products = asked @ shared(self.key, asked).mT
        for step in self.steps:
            products = step(products, rows)
        return products

    def heads_apart(self, heads: int) -> "Seen":
        """The same attention with leading dimensions (B, H), if there are others: (B H), or further ones before.

        Args:
            heads: how many there are, if heads and batch share a dimension.
        """
        *leading, count, width = self.query.shape
        if len(leading) == 2:
            return self
        number = leading[-1] if len(leading) > 2 else heads if leading[0] % heads == 0 else 1
        apart = (math.prod(leading) // number, number)
        query = self.query.reshape(*apart, count, width)
        key = self.key.reshape(*apart, *self.key.shape[-2:])
        hides = self.hides
        if hides is not None and hides.dim() > 1:
            hides = hides.expand(*leading, -1).reshape(*apart, -1)
        return replace(self, query=query, key=key, hides=hides, steps=(led(leading), *self.steps, led(apart)))


def shared(key: Tensor, query: Tensor) -> Tensor:
    """Keys with as many heads as the queries."""
    if key.dim() < 3 or key.shape[-3] == query.shape[-3]:
        return key
    return key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)


def row_blocks(count: int, width: int) -> Iterator[Tensor]:
    """All rows, so few at a time that those of `width` numbers each take little memory.

    >>> [len(rows) for rows in row_blocks(5, BLOCK // 2)]
    [2, 2, 1]
    """
    yield from torch.arange(count).split(max(1, BLOCK // width))


def scaled(factor: float | Tensor) -> Step:
    """Multiply by a number, or by one for each head."""
    return lambda logits, rows: logits * factor


def added(bias: Tensor) -> Step:
    """Add a bias, or a mask of large negative numbers."""
    return lambda logits, rows: logits + _of_rows(bias, rows)


def filled(mask: Tensor, value: float) -> Step:
    """Replace what the mask covers."""
    return lambda logits, rows: logits.masked_fill(_of_rows(mask, rows), value)


def led(leading: Sequence[int]) -> Step:
    """Other leading dimensions."""
    return lambda logits, rows: logits.reshape(*leading, *logits.shape[-2:])


def _of_rows(given: Tensor, rows: Tensor | None) -> Tensor:
    if rows is None or given.dim() < 2 or given.shape[-2] == 1:
        return given
    return given.index_select(-2, rows)


def hidden_keys(mask: Tensor) -> Tensor:
    """(..., M) of keys that a mask (..., N or 1, M) hides from every query."""
    return mask if mask.dim() < 2 else mask.all(dim=-2)


# ---- steps that are written out, as functions of PyTorch


@dataclass(frozen=True)
class Call:
    """A function of PyTorch that was called with logits.

    Args:
        before: the logits.
        shape: of them, before the call: it may have changed them in place.
        args, named: of the call.
        after: what it returned.
    """

    before: Tensor
    shape: torch.Size
    args: Sequence[Any]
    named: Mapping[str, Any]
    after: Tensor

    @property
    def other(self) -> Any:
        """The other operand."""
        return next((x for x in self.args if x is not self.before), None)


Trace = Callable[[Seen, Call], Seen | None]  # the attention after a call; None if it is no step of one


def _multiply(seen: Seen, call: Call) -> Seen | None:
    return _scale(seen, call.other)


def _divide(seen: Seen, call: Call) -> Seen | None:
    if call.args[0] is not call.before or not isinstance(call.other, Tensor | int | float):
        return None
    return _scale(seen, 1 / call.other)


def _scale(seen: Seen, factor: Any) -> Seen | None:
    if isinstance(factor, Tensor):
        if factor.dim() > 1 and factor.shape[-2:] != (1, 1):
            return None
        factor = factor.detach()
    elif not isinstance(factor, int | float):
        return None
    return replace(seen, factor=seen.factor * factor, steps=(*seen.steps, scaled(factor)))


def _add(seen: Seen, call: Call) -> Seen | None:
    if not isinstance(call.other, Tensor):
        return seen if isinstance(call.other, int | float) else None
    return biased(seen, call.other * call.named.get("alpha", 1))


def biased(seen: Seen, bias: Tensor) -> Seen:
    """The attention with a bias, or a mask, added to its logits."""
    bias = bias.detach()
    return _hiding(replace(seen, steps=(*seen.steps, added(bias))), bias < NEVER)


def _fill(seen: Seen, call: Call) -> Seen | None:
    mask, value = (*call.args[1:], *call.named.values())[:2]
    return _filled(seen, mask, value)


def _where(seen: Seen, call: Call) -> Seen | None:
    if len(call.args) != 3 or call.args[1] is not call.before:
        return None
    mask, _, value = call.args
    return None if isinstance(value, Tensor) and value.numel() != 1 else _filled(seen, ~mask, value)


def _filled(seen: Seen, mask: Tensor, value: Any) -> Seen:
    after = replace(seen, steps=(*seen.steps, filled(mask, float(value))))
    return _hiding(after, mask) if float(value) < NEVER else after


def _shape(seen: Seen, call: Call) -> Seen | None:
    after = call.after.shape
    if after[-2:] != call.shape[-2:]:
        return None
    return seen if after == call.shape else replace(seen, steps=(*seen.steps, led(after[:-2])))


def _hiding(seen: Seen, mask: Tensor) -> Seen:
    hides = hidden_keys(mask)
    if not hides.dim() or not bool(hides.any()):
        return seen
    return replace(seen, hides=hides if seen.hides is None else seen.hides | hides)


def query_and_key(*args: Any) -> tuple[Tensor, Tensor] | None:
    """Query (..., N, D) and key (..., M, D) of an einsum that sums over one index and keeps two others last."""
    if len(args) != 3 or not isinstance(args[0], str):
        return None
    inputs, _, output = args[0].replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    summed = [index for index in first if index in second and index not in output]
    if "." in inputs or len(summed) != 1 or len(output) < 3:
        return None
    row, column = output[-2], output[-1]
    operands = [(first, args[1]), (second, args[2])]
    if row in second and column in first:
        operands.reverse()
    result = []
    for last, (indices, tensor) in zip((row, column), operands, strict=True):
        order = [*output[:-2], last, *summed]
        if sorted(indices) != sorted(order):
            return None
        result.append(tensor.permute([indices.index(index) for index in order]))
    return result[0], result[1]


PRODUCTS = frozenset({torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.baddbmm})
SOFTMAXES = frozenset({torch.softmax, Tensor.softmax, F.softmax})
# What may lie between a product and its softmax.
TRACES: Mapping[Any, Trace] = {
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.mul_), _multiply),
    **dict.fromkeys((Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__), _multiply),
    **dict.fromkeys((torch.div, Tensor.div, Tensor.div_, Tensor.__truediv__, Tensor.__itruediv__), _divide),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__), _add),
    **dict.fromkeys((torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_), _fill),
    torch.where: _where,
    **dict.fromkeys((Tensor.view, Tensor.reshape, torch.reshape), _shape),
    **dict.fromkeys((Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze), _shape),
    **dict.fromkeys((Tensor.contiguous, Tensor.float, Tensor.to, Tensor.type_as, Tensor.clone), _shape),
}
