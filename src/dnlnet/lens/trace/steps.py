"""Steps of written-out attention: the PyTorch functions allowed between its product and its softmax."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.lens.trace.attention_call import AttentionCall, multiply, reshape_leading


@dataclass(frozen=True)
class FunctionCall:
    """Call of a PyTorch function with logits.

    Args:
        before: Logits.
        shape: Shape of the logits before the call, which may change them in place.
        args, named: Arguments of the call.
        after: Result.
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


# Returns the attention after a call, or None if the call is not a step of attention.
StepReader = Callable[[AttentionCall, FunctionCall], AttentionCall | None]


def _multiply(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    return _scale(attention, call.other)


def _divide(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    if call.args[0] is not call.before or not isinstance(call.other, Tensor | int | float):
        return None
    return _scale(attention, 1 / call.other)


def _scale(attention: AttentionCall, factor: Any) -> AttentionCall | None:
    if isinstance(factor, Tensor):
        if factor.numel() > 1 and factor.shape[-2:] != (1, 1):
            return None
        factor = factor.detach()
    elif not isinstance(factor, int | float):
        return None
    return replace(attention, factor=attention.factor * factor, steps=(*attention.steps, multiply(factor)))


def _add(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    if not isinstance(call.other, Tensor):
        return attention if isinstance(call.other, int | float) else None
    factor = call.named.get("alpha", 1)
    return attention.with_bias(call.other if factor == 1 else call.other * factor)


def _subtract(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    if call.args[0] is not call.before:
        return None
    if isinstance(call.other, Tensor) and call.other.shape[-1:] != (1,):
        return attention.with_bias(-call.other * call.named.get("alpha", 1))
    return attention  # the softmax ignores a constant over keys


def _clamp(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    limits = dict(zip(("min", "max"), call.args[1:], strict=False)) | dict(call.named)
    least, most = limits.get("min"), limits.get("max")
    return replace(attention, steps=(*attention.steps, lambda logits, rows: logits.clamp(least, most)))


def _fill(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    given = dict(zip(("mask", "value"), call.args[1:], strict=False)) | dict(call.named)
    return attention.with_mask(given["mask"], given["value"])


def _where(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    if len(call.args) != 3 or call.args[1] is not call.before:
        return None
    mask, _, value = call.args
    return None if isinstance(value, Tensor) and value.numel() != 1 else attention.with_mask(~mask, value)


def _reshape(attention: AttentionCall, call: FunctionCall) -> AttentionCall | None:
    after = call.after.shape
    if after[-2:] != call.shape[-2:]:
        return None
    if after == call.shape:
        return attention
    reshaped = attention.reshape_hidden_keys(call.shape[:-2], after[:-2])
    return replace(reshaped, steps=(*attention.steps, reshape_leading(after[:-2])))


def query_and_key(*args: Any) -> tuple[Tensor, Tensor] | None:
    """Return query (..., N, D) and key (..., M, D) of an einsum that sums over one index, or None."""
    if len(args) != 3 or not isinstance(args[0], str):
        return None
    inputs, _, output = args[0].replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    if "." in inputs:
        elided = {args[1].dim() - len(first), args[2].dim() - len(second)}
        if len(elided) != 1 or not first.startswith("...") or not second.startswith("..."):
            return None
        leading = "".join(chr(ord("\u0391") + number) for number in range(elided.pop() + 3))
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
STEPS: Mapping[Any, StepReader] = {
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.mul_), _multiply),
    **dict.fromkeys((Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__), _multiply),
    **dict.fromkeys((torch.div, Tensor.div, Tensor.div_, Tensor.__truediv__, Tensor.__itruediv__), _divide),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__), _add),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__isub__), _subtract),
    **dict.fromkeys((torch.clamp, Tensor.clamp, Tensor.clamp_), _clamp),
    **dict.fromkeys((torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_), _fill),
    torch.where: _where,
    **dict.fromkeys((Tensor.view, Tensor.reshape, torch.reshape), _reshape),
    **dict.fromkeys((Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze), _reshape),
    **dict.fromkeys((Tensor.contiguous, Tensor.float, Tensor.to, Tensor.type_as, Tensor.clone), _reshape),
}
