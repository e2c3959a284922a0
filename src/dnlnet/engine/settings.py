"""Settings of training in recipes: optimiser, schedule and computation."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from dnlnet.errors import shown
from dnlnet.fields import (
    Flag,
    Fraction,
    FractionBelowOne,
    LearningRate,
    OpenFraction,
    Part,
    Pattern,
    PositiveFloat,
    PositiveInt,
    SmallInt,
    Text,
)


class Optim(Part):
    """Optimiser: stochastic gradient descent, or AdamW with betas of 0.9 and 0.999."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: LearningRate
    momentum: FractionBelowOne = 0.9  # sgd only
    nesterov: Flag = False  # sgd only
    weight_decay: Fraction = 5e-4
    no_decay: tuple[Pattern, ...] = ()  # patterns of parameter names without weight decay, such as block.query
    decay_norms: Flag = True  # apply weight decay to the parameters of normalisation layers
    clip: PositiveFloat | None = None  # largest norm of the gradient
    average: OpenFraction | None = None  # decay of a moving average of the weights, which is evaluated and saved

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> Self:
        usual = type(self).model_fields["momentum"].default
        if self.kind == "adamw" and self.momentum != usual:
            raise ValueError(
                f"momentum={self.momentum} is a setting of sgd, and adamw has none; leave it at {usual}, or set "
                "kind to sgd"
            )
        if self.nesterov and (self.kind == "adamw" or not self.momentum):
            raise ValueError("nesterov=true needs sgd with a momentum; set nesterov to false")
        return self


class Phase(Part):
    """Later phase of training, which starts from the weights of the previous phase."""

    train: Text
    iterations: PositiveInt
    lr: LearningRate
    unfrozen: tuple[Text, ...] = ()  # name prefixes of parameters that are trained from here on


class Schedule(Part):
    """Number of iterations, batch size, and learning rate at iteration i of n, as a factor of its base value.

    - poly: (1 - i/n)^power
    - step: 0.1 for every milestone that i has reached
    - cosine: (1 + cos(pi i/n)) / 2, half a period

    During the first `warmup` iterations, the factor rises linearly from `warmup_start` to the schedule's value at
    their end.

    >>> Schedule(iterations=100, batch=8, power=1.0).factor(25)
    0.75
    """

    iterations: PositiveInt
    batch: SmallInt  # samples per iteration, over all processes
    accumulate: SmallInt = 1  # micro-batches that a batch is split into, to save memory
    kind: Literal["poly", "step", "cosine"] = "poly"
    power: Annotated[float, Field(strict=True, gt=0, le=100)] = 0.9
    milestones: tuple[PositiveInt, ...] = ()
    warmup: Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)] = 0
    warmup_start: Fraction = 0.0
    then: tuple[Phase, ...] = ()

    @property
    def total(self) -> int:
        """Number of iterations of all phases."""
        return self.iterations + sum(phase.iterations for phase in self.then)

    @model_validator(mode="after")
    def _can_be_followed(self, info: ValidationInfo) -> Self:
        """Refuse a schedule that no run can follow, except in the stored recipe of a trained model."""
        if info.context is not None and info.context.get("stored"):
            return self
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be accumulated in {self.accumulate} equal parts")
        shortest = min([self.iterations, *(phase.iterations for phase in self.then)])
        if self.warmup > shortest:
            raise ValueError(f"a warmup of {self.warmup} iterations is longer than the run, of {shortest}")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, got {shown(list(self.milestones))}")
        if self.kind == "step" and self.milestones and self.milestones[-1] >= self.iterations:
            raise ValueError(
                f"a milestone at {self.milestones[-1]} lies behind the last of {self.iterations} iterations"
            )
        return self

    def factor(self, iteration: int, iterations: int | None = None) -> float:
        """Return the factor at an iteration, counted from 0; `iterations` is the length of a later phase."""
        length = iterations or self.iterations
        if iteration < self.warmup:
            end = self._unwarmed_factor(self.warmup, length)
            return self.warmup_start + (end - self.warmup_start) * iteration / self.warmup
        return self._unwarmed_factor(iteration, length)

    def _unwarmed_factor(self, iteration: int, iterations: int) -> float:
        done = min(iteration / iterations, 1.0)
        if self.kind == "poly":
            return float((1 - done) ** self.power)
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        return float(0.1 ** sum(iteration >= milestone for milestone in self.milestones))


class Training(Part):
    """Computation of the training steps, and intervals of evaluations and checkpoints."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of the forward pass; float32 uses no autocast
    channels_last: Flag = False
    compile: Flag = False
    frozen: tuple[Text, ...] = ()  # name prefixes of parameters that are not trained
    frozen_statistics: Flag = False  # batch norms keep their initial statistics
    cache: Flag = False  # compute the features of a frozen backbone once, and keep them
    evaluate_every: PositiveInt = 1000
    save_every: PositiveInt = 1000
    keep: Annotated[int, Field(strict=True, ge=1, le=1000)] = 2  # number of checkpoints to keep


@dataclass(frozen=True)
class RunSettings:
    """Settings of one run, from its recipe and from the command."""

    optim: Optim
    schedule: Schedule
    training: Training
    seed: int = 0
    workers: int = 0  # data-loading processes per training process
    skip_nonfinite: int = 0  # iterations that may be skipped because a loss or gradient is not finite
