"""Linear projections of one input, whose backward pass adds up their gradients inside of the matrix multiplies.

Autograd writes a gradient of the input for each projection, and reads them all again to add them up. For the queries,
keys and values of small maps, that is several per cent of a training step.
"""

# B batch, N positions, C channels of the input, D of an output

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from dnlnet.attention.contexts import is_plain, is_recorded, is_transformed

_CALLS = nn.Linear.forward, nn.Module.__call__


def project_together(layers: Mapping[str, nn.Module], tokens: Tensor) -> dict[str, Tensor]:
    """Each layer's projection of the same tokens, (B, N, C) to (B, N, D).

    >>> layers = {"query": nn.Linear(4, 2), "value": nn.Linear(4, 3)}
    >>> {name: out.shape[2] for name, out in project_together(layers, torch.randn(1, 5, 4)).items()}
    {'query': 2, 'value': 3}
    """
    if torch.is_grad_enabled() and tokens.requires_grad and not is_recorded() and not is_transformed():
        linear = [layer for layer in layers.values() if type(layer) is nn.Linear and _is_untouched(layer)]
        if len(linear) == len(layers) and is_plain(tokens, *(layer.weight for layer in linear)):
            parameters = [parameter for layer in linear for parameter in (layer.weight, layer.bias)]
            return dict(zip(layers, _Projections.apply(tokens, *parameters), strict=True))
    return {name: layer(tokens) for name, layer in layers.items()}


def _is_untouched(layer: nn.Linear) -> bool:
    """Return whether calling the layer is nothing but `F.linear` of its parameters.

    Hooks, also those of all modules, a forward method replaced on the instance or the class (as LoRA, accelerate and
    tracers do), and parameters of other tensor classes (quantised or sharded) need the call itself.
    """
    replaced = "forward" in vars(layer) or (nn.Linear.forward, nn.Module.__call__) != _CALLS
    hooked = layer._forward_pre_hooks or layer._forward_hooks or layer._backward_pre_hooks or layer._backward_hooks
    plain = all(type(parameter) in (nn.Parameter, Tensor, NoneType) for parameter in (layer.weight, layer.bias))
    return plain and not (replaced or hooked or _has_any_global_hook())


class _Projections(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, *parameters: Any) -> tuple[Tensor, ...]:
        """`parameters` are the weight and the bias, which may be None, of each layer."""
        weights, biases = parameters[::2], parameters[1::2]
        ctx.save_for_backward(tokens, *weights)
        return tuple(F.linear(tokens, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """dx = sum of dy W over the layers; dW = dy'x and db = sum of dy, of each."""
        tokens, *weights = ctx.saved_tensors
        flat, dys = tokens.flatten(0, 1), [grad.flatten(0, 1) for grad in grads]
        needed = iter(ctx.needs_input_grad)
        found = [_sum_of_products(dys, weights, flat).view(tokens.shape) if next(needed) else None]
        for dy in dys:
            found.append(torch.mm(dy.mT, flat) if next(needed) else None)
            found.append(dy.sum(dim=0) if next(needed) else None)
        return tuple(found)


def _sum_of_products(dys: Sequence[Tensor], weights: Sequence[Tensor], like: Tensor) -> Tensor:
    """The sum of dy W over the layers, in the memory order of `like`."""
    pairs = zip(dys, weights, strict=True)
    if torch.is_grad_enabled():  # a second derivative may follow, which nothing written in place would have
        return torch.stack([torch.mm(dy, weight) for dy, weight in pairs]).sum(dim=0)
    total = torch.empty_like(like)
    torch.mm(*next(pairs), out=total)
    for dy, weight in pairs:
        torch.addmm(total, dy, weight, out=total)
    return total
