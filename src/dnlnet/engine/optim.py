"""Optimiser, its parameter groups, and frozen parameters."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.engine.settings import Optim

# Number of tensors per weight tensor in the state of each optimiser.
MOMENTS = {"sgd": 1, "adamw": 2}


def parameter_groups(model: nn.Module, optim: Optim) -> list[dict[str, Any]]:
    """Return the trainable parameters in up to two groups: with and without weight decay.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> groups = parameter_groups(model, Optim(lr=0.1, weight_decay=0.1, decay_norms=False))
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(2, 0.1), (2, 0.0)]
    """
    kinds = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm
    layers = [] if optim.decay_norms else [module for module in model.modules() if isinstance(module, kinds)]
    norms = {id(parameter) for layer in layers for parameter in layer.parameters()}
    patterns = [re.compile(pattern) for pattern in optim.no_decay]
    decaying: list[Tensor] = []
    constant: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            exempt = id(parameter) in norms or any(pattern.search(name) for pattern in patterns)
            (constant if exempt else decaying).append(parameter)
    groups = [{"params": decaying, "weight_decay": optim.weight_decay}, {"params": constant, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(groups: list[dict[str, Any]], optim: Optim) -> torch.optim.Optimizer:
    """Build the optimiser of these parameter groups. Its learning rate is 0 until a step sets it.

    >>> optim = Optim(kind="adamw", lr=0.1)
    >>> build_optimizer(parameter_groups(nn.Linear(2, 2), optim), optim).defaults["betas"]
    (0.9, 0.999)
    """
    if optim.kind == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999))
    return torch.optim.SGD(groups, lr=0.0, momentum=optim.momentum, nesterov=optim.nesterov)


def freeze(model: nn.Module, prefixes: Sequence[str], frozen: bool = True) -> None:
    """Freeze or unfreeze all parameters whose names begin with one of the prefixes.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> freeze(net, ["0."])
    >>> [p.requires_grad for p in net.parameters()]
    [False, False, True, True]
    """
    for prefix in prefixes:
        named = [p for name, p in model.named_parameters() if name.startswith(prefix)]
        if not named:
            what = "freeze" if frozen else "unfreeze"
            raise ValueError(f"nothing to {what}: no parameter's name begins with {prefix!r}")
        for parameter in named:
            parameter.requires_grad_(not frozen)


def set_training_mode(model: nn.Module, frozen_statistics: bool) -> None:
    """Switch to training mode, except for batch norms with frozen statistics or frozen parameters.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> set_training_mode(net, frozen_statistics=True)
    >>> [module.training for module in net]
    [True, False]
    """
    model.train()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            learnt = any(p.requires_grad for p in module.parameters())
            module.train(not frozen_statistics and (learnt or not list(module.parameters())))
