"""Watch every dot-product attention of a model while it runs, and optionally change its queries.

Fused attention goes through `scaled_dot_product_attention`. Written-out attention is a matrix product, then scales,
biases, masks and reshapes, then a softmax: each step is recorded, and the softmax completes it. One
`TorchFunctionMode` sees both. `nn.MultiheadAttention` is opened so that its steps are seen as well.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from dnlnet.lens.trace.attention_call import AttentionCall, hide_later, multiply
from dnlnet.lens.trace.steps import PRODUCTS, SOFTMAXES, STEPS, FunctionCall, query_and_key

AttentionCallback = Callable[[AttentionCall], Tensor | None]  # may return other queries for the model to use


@contextmanager
def watch_attention(model: nn.Module, callback: AttentionCallback) -> Iterator[None]:
    """Call `callback` with every attention of the model that runs inside the `with` block.

    The model's output stays the same to the bit unless the callback returns other queries. PyTorch's native fast path
    of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which hides its attention, is off inside the block.
    """
    modules = _RunningModules(model)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with modules.followed(), _AttentionMode(modules, callback):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _RunningModules:
    """Names of the modules that are running. Further attentions in one run of a module get a number."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.counts = model, dict[str, int]()
        self.stack: list[tuple[str, tuple[int, ...]]] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Keep the names up to date inside the `with` block."""
        with ExitStack() as hooks:
            for name, module in self.model.named_modules():
                hooks.enter_context(module.register_forward_pre_hook(self._begin(name), with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(self._end(name), always_call=True))
            yield

    def _begin(self, name: str) -> Callable[..., None]:
        def begin(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            given = next((x for x in (*args, *named.values()) if isinstance(x, Tensor)), None)
            self.stack.append((name, () if given is None else tuple(given.shape)))
            self.counts[name] = 0

        return begin

    def _end(self, name: str) -> Callable[..., None]:
        def end(*_: object) -> None:
            if self.stack and self.stack[-1][0] == name:  # not if another hook failed before the module began
                self.stack.pop()

        return end

    @property
    def name(self) -> str:
        """Name of the innermost running module."""
        return self.stack[-1][0] if self.stack else ""

    def numbered(self, name: str) -> str:
        """Return the name of the next attention in this module."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return (name or "attention") + (f"#{count}" if count > 1 else "")


class _AttentionMode(TorchFunctionMode):
    """Function mode that follows logits from their product to their softmax."""

    def __init__(self, modules: _RunningModules, callback: AttentionCallback) -> None:
        super().__init__()
        self.modules, self.callback = modules, callback
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
        if func in SOFTMAXES:
            return self._softmax(func, args, named)
        found = [x for x in args if isinstance(x, Tensor) and x in self.traced] if func in STEPS else []
        shapes = [x.shape for x in found]
        result = func(*args, **named)
        if func in PRODUCTS:
            self._product(result, args, named)
        elif func is torch.einsum:
            self._einsum(result, args)
        elif len(found) == 1 and isinstance(result, Tensor):
            after = STEPS[func](self.traced[found[0]], FunctionCall(found[0], shapes[0], args, named, result))
            self.traced.pop(result, None)  # an in-place step returns the logits themselves
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
        hidden = None
        if is_causal and key.shape[-2] > query.shape[-2]:
            hidden = torch.arange(key.shape[-2], device=key.device) >= query.shape[-2]
        call = replace(
            self._call(query, key),
            name=self.modules.numbered(self.modules.name),
            steps=(multiply(factor), hide_later) if is_causal else (multiply(factor),),
            factor=factor,
            hidden_keys=hidden,
        )
        if attn_mask is not None:
            call = call.with_mask(~attn_mask) if attn_mask.dtype == torch.bool else call.with_bias(attn_mask)
        other = self.callback(call)
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

    def _call(self, query: Tensor, key: Tensor) -> AttentionCall:
        return AttentionCall(self.modules.name, query, key, enclosing=tuple(self.modules.stack))

    def _product(self, result: Any, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        bias, *factors = args if len(args) == 3 else (None, *args)
        if len(factors) == 2 and not named and all(isinstance(x, Tensor) and x.dim() > 2 for x in factors):
            query, key = factors
            call = self._call(query, key.mT)
            self.traced[result] = call if bias is None else call.with_bias(bias)

    def _einsum(self, result: Any, args: Sequence[Any]) -> None:
        found = query_and_key(*args)
        if found is not None:
            self.traced[result] = self._call(*found)

    def _softmax(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        logits: Any = args[0] if args else named.get("input")
        call: AttentionCall | None = self.traced.get(logits) if isinstance(logits, Tensor) else None
        dim = named.get("dim", args[1] if len(args) > 1 else None)
        if call is None or dim not in (-1, logits.dim() - 1):
            return func(*args, **named)
        call = call.reshape_hidden_keys(logits.shape[:-2], call.query.shape[:-2])
        call = replace(call, name=self.modules.numbered(call.name))
        other = self.callback(call)
        if other is not None:
            args = (call.logits(query=other).to(logits.dtype).reshape(logits.shape), *args[1:])
            named.pop("input", None)
        return func(*args, **named)


def _opened(function: Any) -> Any:
    """Copy a function of `torch.nn.functional` so that it skips the override check and its own steps are seen."""
    names = {**vars(F), "has_torch_function": lambda _: False}
    opened = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


_opened_multi_head_attention = _opened(F.multi_head_attention_forward)
