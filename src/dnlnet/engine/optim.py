"""The optimiser, its parameter groups, and learning-rate schedules."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["poly", "step", "cosine"]
Algorithm = Literal["sgd", "adamw"]

# Tensors of the size of the weights that the state of each optimiser holds.
MOMENTS: Mapping[Algorithm, int] = {"sgd": 1, "adamw": 2}


@dataclass(frozen=True)
class LearningRate:
    """The learning rate at iteration i of n, as a factor of its base value.

    - poly: (1 - i/n)^power
    - step: 0.1 for every milestone that i has reached
    - cosine: (1 + cos(pi i/n)) / 2, half a period

    During the first `warmup` iterations the rate rises linearly from `warmup_start` times the base to the schedule's
    value at their end.

    >>> LearningRate("poly", 100, power=1.0)(25)
    0.75
    """

    kind: Kind
    iterations: int
    power: float = 0.9
    milestones: tuple[int, ...] = ()
    warmup: int = 0
    warmup_start: float = 0.0

    def __call__(self, iteration: int) -> float:
        """The factor at this iteration, counted from 0."""
        if iteration < self.warmup:
            end = self._factor(self.warmup)
            return self.warmup_start + (end - self.warmup_start) * iteration / self.warmup
        return self._factor(iteration)

    def _factor(self, iteration: int) -> float:
        progress = min(iteration / self.iterations, 1.0)
        if self.kind == "poly":
            return float((1 - progress) ** self.power)
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        return float(0.1 ** sum(iteration >= milestone for milestone in self.milestones))


def parameter_groups(
    model: nn.Module, weight_decay: float, no_decay: Sequence[str] = (), decay_norms: bool = True
) -> list[dict[str, Any]]:
    """The trainable parameters, in a group with weight decay and one without.

    Args:
        model: whose parameters to group; frozen ones are left out.
        weight_decay: of the first group.
        no_decay: patterns, searched anywhere in the names, of parameters without weight decay.
        decay_norms: apply weight decay to the parameters of normalisation layers too.

    >>> groups = parameter_groups(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), 0.1, decay_norms=False)
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(2, 0.1), (2, 0.0)]
    """
    norms = set() if decay_norms else {id(p) for p in _norm_parameters(model)}
    patterns = [re.compile(pattern) for pattern in no_decay]
    decaying: list[Tensor] = []
    constant: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            exempt = id(parameter) in norms or any(pattern.search(name) for pattern in patterns)
            (constant if exempt else decaying).append(parameter)
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": constant, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build_optimizer(
    algorithm: Algorithm, groups: list[dict[str, Any]], momentum: float, nesterov: bool = False
) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum, or AdamW with betas of 0.9 and 0.999, which has no use for it.

    The learning rate is 0 until it is set, as it is before every step.

    >>> build_optimizer("adamw", parameter_groups(nn.Linear(2, 2), 0.1), momentum=0.9).defaults["betas"]
    (0.9, 0.999)
    """
    if algorithm == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999))
    return torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=nesterov)


def _norm_parameters(model: nn.Module) -> Iterable[Tensor]:
    norms = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm
    for module in model.modules():
        if isinstance(module, norms):
            yield from module.parameters()


def freeze(model: nn.Module, prefixes: Sequence[str], frozen: bool = True) -> None:
    """Freeze, or unfreeze, all parameters whose names begin with one of the prefixes.

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
