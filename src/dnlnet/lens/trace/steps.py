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
        hides: True for keys that no query may see, (..., M) as the logits are after the steps; None if all may be
            seen.
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

    def heads_apart(self, heads: int, first: bool = False) -> "Seen":
        """The same attention with leading dimensions (B, H), if there are others: (B H), or further ones before.

        Args:
            heads: how many there are, if heads and batch share a dimension.
            first: further dimensions, such as windows, stand behind the heads: (B, H, L) and not (B, L, H).
        """
        *leading, count, width = self.query.shape
        if len(leading) == 2:
            return self
        if first and len(leading) == 3:
            behind = (leading[0], leading[2], leading[1])
            steps = (led(behind), swapped, *self.steps, swapped)
            hides = None if self.hides is None else self.hides.broadcast_to(*leading, self.hides.shape[-1])
            moved = replace(
                self,
                query=self.query.transpose(1, 2),
                key=self.key.transpose(1, 2),
                steps=steps,
                hides=None if hides is None else hides.transpose(1, 2),
            )
            return moved.heads_apart(heads)
        number = leading[-1] if len(leading) > 2 else heads if leading[0] % heads == 0 else 1
        apart = (math.prod(leading) // number, number)
        query = self.query.reshape(*apart, count, width)
        key = self.key.reshape(*apart, *self.key.shape[-2:])
        steps = (led(leading), *self.steps, led(apart))
        return replace(self.led(leading, apart), query=query, key=key, steps=steps)

    def head_numbers(self, heads: int, first: bool = False) -> Tensor:
        """The head that each of the leading dimensions' places is, in their shape or broadcast to it."""
        leading = self.query.shape[:-2]
        if len(leading) == 1:
            return torch.arange(leading[0]) % (heads if leading[0] % heads == 0 else 1)
        if first and len(leading) == 3:
            return torch.arange(leading[1])[:, None]
        return torch.arange(leading[-1])

    def led(self, before: Sequence[int], after: Sequence[int]) -> "Seen":
        """The same attention with other leading dimensions of what it hides."""
        if self.hides is None:
            return self
        hides = self.hides.broadcast_to(*before, self.hides.shape[-1]).reshape(*after, self.hides.shape[-1])
        return replace(self, hides=hides)


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


def hide_later(logits: Tensor, rows: Tensor | None) -> Tensor:
    """Each query sees the keys up to its own position."""
    count, key_count = logits.shape[-2:]
    query = torch.arange(count, device=logits.device) if rows is None else rows
    return logits.masked_fill(torch.arange(key_count, device=logits.device) > query[:, None], -math.inf)


def clamped(least: Any, most: Any) -> Step:
    """Keep within limits."""
    return lambda logits, rows: logits.clamp(least, most)


def led(leading: Sequence[int]) -> Step:
    """Other leading dimensions."""
    return lambda logits, rows: logits.reshape(*leading, *logits.shape[-2:])


def swapped(logits: Tensor, rows: Tensor | None) -> Tensor:
    """Leading dimensions (B, L, H) for (B, H, L), and back."""
    return logits.transpose(1, 2)


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
        if factor.numel() > 1 and factor.shape[-2:] != (1, 1):
            return None
        factor = factor.detach()
    elif not isinstance(factor, int | float):
        return None
    return replace(seen, factor=seen.factor * factor, steps=(*seen.steps, scaled(factor)))


def _add(seen: Seen, call: Call) -> Seen | None:
    if not isinstance(call.other, Tensor):
        return seen if isinstance(call.other, int | float) else None
    factor = call.named.get("alpha", 1)
    return biased(seen, call.other if factor == 1 else call.other * factor)


def _subtract(seen: Seen, call: Call) -> Seen | None:
    if call.args[0] is not call.before:
        return None
    if isinstance(call.other, Tensor) and call.other.shape[-1:] != (1,):
        return biased(seen, -call.other * call.named.get("alpha", 1))
    return seen  # the same for all keys: the softmax does not see it


def biased(seen: Seen, bias: Tensor) -> Seen:
    """The attention with a bias, or a mask of large negative numbers, added to its logits."""
    bias = bias.detach()
    return _hiding(replace(seen, steps=(*seen.steps, added(bias))), bias < NEVER)


def _clamp(seen: Seen, call: Call) -> Seen | None:
    limits = dict(zip(("min", "max"), call.args[1:], strict=False)) | dict(call.named)
    return replace(seen, steps=(*seen.steps, clamped(limits.get("min"), limits.get("max"))))


def _fill(seen: Seen, call: Call) -> Seen | None:
    given = dict(zip(("mask", "value"), call.args[1:], strict=False)) | dict(call.named)
    return covered(seen, given["mask"], given["value"])


def _where(seen: Seen, call: Call) -> Seen | None:
    if len(call.args) != 3 or call.args[1] is not call.before:
        return None
    mask, _, value = call.args
    return None if isinstance(value, Tensor) and value.numel() != 1 else covered(seen, ~mask, value)


def covered(seen: Seen, mask: Tensor, value: Any = -math.inf) -> Seen:
    """The attention with logits replaced where the mask is True."""
    after = replace(seen, steps=(*seen.steps, filled(mask, float(value))))
    return _hiding(after, mask) if float(value) < NEVER else after


def _shape(seen: Seen, call: Call) -> Seen | None:
    after = call.after.shape
    if after[-2:] != call.shape[-2:]:
        return None
    if after == call.shape:
        return seen
    return replace(seen.led(call.shape[:-2], after[:-2]), steps=(*seen.steps, led(after[:-2])))


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
    if "." in inputs:
        hidden = {args[1].dim() - len(first), args[2].dim() - len(second)}
        if len(hidden) != 1 or not first.startswith("...") or not second.startswith("..."):
            return None
        leading = "".join(chr(ord("\u0391") + number) for number in range(hidden.pop() + 3))
        first, second, output = (part.replace("...", leading) for part in (first, second, output))
    summed = [index for index in first if index in second and index not in output]
    if len(summed) != 1 or len(output) < 3:
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
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__isub__), _subtract),
    **dict.fromkeys((torch.clamp, Tensor.clamp, Tensor.clamp_), _clamp),
    **dict.fromkeys((torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_), _fill),
    torch.where: _where,
    **dict.fromkeys((Tensor.view, Tensor.reshape, torch.reshape), _shape),
    **dict.fromkeys((Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze), _shape),
    **dict.fromkeys((Tensor.contiguous, Tensor.float, Tensor.to, Tensor.type_as, Tensor.clone), _shape),
}
