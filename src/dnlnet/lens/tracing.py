"""See every dot-product attention of a model while it runs, whoever wrote it, and change its queries if asked.

Fused attention goes through `scaled_dot_product_attention`. Attention that is written out is a matrix product, then
scales, biases, masks and changes of shape, then a softmax: each step is noted, and the softmax makes it an attention.
Both are seen by one `TorchFunctionMode`. `nn.MultiheadAttention` is opened, so that its steps are seen as well.
"""

# B batch, H heads, N queries, M keys, D width; leading dimensions "..." are those of the softmax, most often B, H

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

Step = Callable[[Tensor, Tensor | None], Tensor]  # from logits (..., R, M) of the rows R to the next; None is all rows


@dataclass(frozen=True)
class Seen:
    """An attention: softmax(steps(query.key)).

    Args:
        name: of the module it ran in.
        query: (..., N, D).
        key: (..., M, D); its heads may be fewer, each shared by several of the query's.
        steps: what happens to the products before the softmax.
        factor: what they are multiplied with, one number or one for each head.
        hides: gives True for keys that no query may see, (..., M); None if all may be seen.
    """

    name: str
    query: Tensor
    key: Tensor
    steps: tuple[Step, ...] = ()
    factor: float | Tensor = 1.0
    hides: Tensor | None = None

    def logits(self, rows: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        """What the softmax is taken of, for all queries or for some rows, perhaps with other queries."""
        asked = self.query if query is None else query
        if rows is not None:
            asked = asked.index_select(-2, rows)
        products = asked @ shared(self.key, asked).mT
        for step in self.steps:
            products = step(products, rows)
        return products


def shared(key: Tensor, query: Tensor) -> Tensor:
    """Keys with as many heads as the queries."""
    if key.dim() < 3 or key.shape[-3] == query.shape[-3]:
        return key
    return key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)


Callback = Callable[[Seen], Tensor | None]  # may give other queries, for the model to go on with


@contextmanager
def watch_attention(model: nn.Module, callback: Callback) -> Iterator[None]:
    """Call `callback` with every attention of the model that runs inside of the `with` block.

    The model's output stays the same to the bit unless the callback gives other queries. PyTorch's native fast path of
    `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which hides its attention, is off meanwhile.
    """
    places = _Places(model)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with places, _Watch(places, callback):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _Places:
    """Which module runs, by its name in the model; a second attention in one run of it gets a number."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.running, self.counts = model, [""], dict[str, int]()
        self.hooks: list[Any] = []

    def __enter__(self) -> None:
        for name, module in self.model.named_modules():
            self.hooks += [
                module.register_forward_pre_hook(self._begin(name)),
                module.register_forward_hook(self._end, always_call=True),
            ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def _begin(self, name: str) -> Callable[..., None]:
        def begin(*_: object) -> None:
            self.running.append(name)
            self.counts[name] = 0

        return begin

    def _end(self, *_: object) -> None:
        self.running.pop()

    def numbered(self, name: str) -> str:
        """The name for the next attention that is seen in this module."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return (name or "attention") + (f"#{count}" if count > 1 else "")


class _Watch(TorchFunctionMode):
    def __init__(self, places: _Places, callback: Callback) -> None:
        super().__init__()
        self.places, self.callback = places, callback
        self.traced = WeakTensorKeyDictionary()  # logits on their way to a softmax

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            return self._fused(*args, **named)
        if func is F.multi_head_attention_forward:
            with self:
                return _opened_multi_head_attention(*args, **named)
        kind = _KINDS.get(func)
        if kind == "product":
            return self._product(func, args, named)
        if kind == "einsum":
            return self._einsum(func, args, named)
        if kind is None or not self.traced:
            return func(*args, **named)
        if kind == "softmax":
            return self._softmax(func, args, named)
        before = next((x for x in args if isinstance(x, Tensor) and x in self.traced), None)
        seen = None if before is None else self.traced[before]
        shape = None if before is None else before.shape
        result = func(*args, **named)
        if seen is not None and isinstance(result, Tensor):
            self.traced.pop(result, None)  # of a step in place
            after = _STEPS[kind](seen, before, shape, args, named, result)
            if after is not None:
                self.traced[result] = after
        return result

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        steps: list[Step] = [_scaled(factor)]
        hides = None
        if is_causal:
            visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
            steps.append(_filled(~visible, -math.inf))
        if attn_mask is not None:
            boolean = attn_mask.dtype == torch.bool
            steps.append(_filled(~attn_mask, -math.inf) if boolean else _added(attn_mask))
            hides = _hidden(~attn_mask if boolean else attn_mask < _NEVER)
        name = self.places.numbered(self.places.running[-1])
        other = self.callback(Seen(name, query, key, tuple(steps), factor, hides))
        return F.scaled_dot_product_attention(
            query if other is None else other,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )

    def _product(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        result = func(*args, **named)
        added, *factors = args if len(args) == 3 else (None, *args)
        if len(factors) == 2 and all(isinstance(x, Tensor) and x.dim() > 2 for x in factors) and not named:
            query, key = factors
            steps = () if added is None else (_added(added),)
            self.traced[result] = Seen(self.places.running[-1], query, key.mT, steps)
        return result

    def _einsum(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        result = func(*args, **named)
        found = _query_and_key(*args)
        if found is not None:
            self.traced[result] = Seen(self.places.running[-1], *found)
        return result

    def _softmax(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        logits = args[0]
        seen: Seen | None = self.traced.get(logits) if isinstance(logits, Tensor) else None
        dim = named.get("dim", args[1] if len(args) > 1 else None)
        if seen is None or dim not in (-1, logits.dim() - 1):
            return func(*args, **named)
        other = self.callback(replace(seen, name=self.places.numbered(seen.name)))
        if other is not None:
            args = (seen.logits(query=other).to(logits.dtype).reshape(logits.shape), *args[1:])
        return func(*args, **named)


def _opened(function: Any) -> Any:
    """A function of `torch.nn.functional` that does not ask who overrides it, but lets its own steps be seen."""
    names = {**vars(F), "has_torch_function": lambda _: False}
    opened = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


_opened_multi_head_attention = _opened(F.multi_head_attention_forward)
_NEVER = -1e4  # added to a logit, it hides the key

# ---- the steps between a product and its softmax, with the queries in the last dimension but one


def _scaled(factor: float | Tensor) -> Step:
    return lambda logits, rows: logits * factor


def _added(bias: Tensor) -> Step:
    return lambda logits, rows: logits + _of_rows(bias, rows)


def _filled(mask: Tensor, value: float) -> Step:
    return lambda logits, rows: logits.masked_fill(_of_rows(mask, rows), value)


def _led(leading: Sequence[int]) -> Step:
    return lambda logits, rows: logits.reshape(*leading, *logits.shape[-2:])


def _of_rows(given: Tensor, rows: Tensor | None) -> Tensor:
    if rows is None or given.dim() < 2 or given.shape[-2] == 1:
        return given
    return given.index_select(-2, rows)


def _hidden(mask: Tensor) -> Tensor:
    """(..., M) of keys that a mask (..., N or 1, M) hides from every query."""
    return mask if mask.dim() < 2 else mask.all(dim=-2)


Traced = Callable[[Seen, Tensor, torch.Size, Sequence[Any], Mapping[str, Any], Tensor], Seen | None]


def _trace_scale(divide: bool) -> Traced:
    def trace(
        seen: Seen, before: Tensor, shape: torch.Size, args: Sequence[Any], named: Mapping[str, Any], after: Tensor
    ) -> Seen | None:
        factor = next((x for x in args if x is not before), None)
        if divide and args[0] is not before:
            return None
        if isinstance(factor, Tensor):
            if factor.dim() > 1 and factor.shape[-2:] != (1, 1):
                return None
            factor = factor.detach()
        elif not isinstance(factor, int | float):
            return None
        factor = 1 / factor if divide else factor
        return replace(seen, factor=seen.factor * factor, steps=(*seen.steps, _scaled(factor)))

    return trace


def _trace_add(
    seen: Seen, before: Tensor, shape: torch.Size, args: Sequence[Any], named: Mapping[str, Any], after: Tensor
) -> Seen | None:
    other = next((x for x in args if x is not before), None)
    if not isinstance(other, Tensor):
        return seen if isinstance(other, int | float) else None
    bias = other.detach() * named.get("alpha", 1)
    hides = _hidden(bias < _NEVER) if bias.dim() else None
    return _hiding(replace(seen, steps=(*seen.steps, _added(bias))), hides)


def _trace_fill(
    seen: Seen, before: Tensor, shape: torch.Size, args: Sequence[Any], named: Mapping[str, Any], after: Tensor
) -> Seen | None:
    mask, value = (*args[1:], *named.values())[:2]
    step = _filled(mask, float(value))
    return _hiding(replace(seen, steps=(*seen.steps, step)), _hidden(mask) if float(value) < _NEVER else None)


def _trace_where(
    seen: Seen, before: Tensor, shape: torch.Size, args: Sequence[Any], named: Mapping[str, Any], after: Tensor
) -> Seen | None:
    if len(args) != 3 or args[1] is not before:
        return None
    mask, _, value = args
    if isinstance(value, Tensor) and value.numel() != 1:
        return None
    step = _filled(~mask, float(value))
    return _hiding(replace(seen, steps=(*seen.steps, step)), _hidden(~mask) if float(value) < _NEVER else None)


def _trace_shape(
    seen: Seen, before: Tensor, shape: torch.Size, args: Sequence[Any], named: Mapping[str, Any], after: Tensor
) -> Seen | None:
    if after.shape[-2:] != shape[-2:]:
        return None
    return seen if after.shape == shape else replace(seen, steps=(*seen.steps, _led(after.shape[:-2])))


def _hiding(seen: Seen, hides: Tensor | None) -> Seen:
    if hides is None or not bool(hides.any()):
        return seen
    return replace(seen, hides=hides if seen.hides is None else seen.hides | hides)


def _query_and_key(*args: Any) -> tuple[Tensor, Tensor] | None:
    """Query (..., N, D) and key (..., M, D) of an einsum that sums over one common index and keeps two others last."""
    if len(args) != 3 or not isinstance(args[0], str):
        return None
    inputs, _, output = args[0].replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    summed = [index for index in first if index in second and index not in output]
    if "." in inputs or len(summed) != 1 or len(output) < 3:
        return None
    *leading, row, column = output
    tensors = {row: (first, args[1]), column: (second, args[2])}
    if row in second and column in first:
        tensors = {row: (second, args[2]), column: (first, args[1])}
    result = []
    for last in (row, column):
        indices, tensor = tensors[last]
        if sorted(indices) != sorted([*leading, last, *summed]):
            return None
        result.append(tensor.permute([indices.index(index) for index in (*leading, last, *summed)]))
    return result[0], result[1]


_STEPS: Mapping[str, Traced] = {
    "multiply": _trace_scale(divide=False),
    "divide": _trace_scale(divide=True),
    "add": _trace_add,
    "fill": _trace_fill,
    "where": _trace_where,
    "shape": _trace_shape,
}

# What each function of PyTorch is to an attention that is written out.
_KINDS: Mapping[Any, str] = {
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.baddbmm), "product"),
    torch.einsum: "einsum",
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__), "multiply"),
    **dict.fromkeys((torch.div, Tensor.div, Tensor.div_, Tensor.__truediv__, Tensor.__itruediv__), "divide"),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__), "add"),
    **dict.fromkeys((torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_), "fill"),
    torch.where: "where",
    **dict.fromkeys(
        (Tensor.view, Tensor.reshape, torch.reshape, Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze),
        "shape",
    ),
    **dict.fromkeys((Tensor.contiguous, Tensor.float, Tensor.to, Tensor.type_as, Tensor.clone), "shape"),
    **dict.fromkeys((torch.softmax, Tensor.softmax, F.softmax), "softmax"),
}
