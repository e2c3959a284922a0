"""How fast a training step is: the engine's against a plain loop of the same network, and where its time goes."""

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from dnlnet.bench.timing import compare_times
from dnlnet.data.catalog import Samples
from dnlnet.engine.optim import build_optimizer, freeze, parameter_groups, set_training_mode
from dnlnet.engine.run import Run
from dnlnet.engine.task import Task
from dnlnet.engine.train import training_step
from dnlnet.layout import convert_to_channels_last, to_channels_last
from dnlnet.recipes.override import override
from dnlnet.recipes.schema import Recipe
from dnlnet.recipes.context import RunContext

PARTS = ("reading", "forward", "backward", "update")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """A form of the training step.

    Images per second are of its best step, as are the seconds of each part where they can be told apart. `ratio` is
    the median over rounds of its time over that of the plain loop; None for what was not measured in turn with it.
    """

    form: str
    images_per_second: float
    ratio: float | None = None
    parts: dict[str, float] | None = None


def bench_train(
    recipe: Recipe,
    data: Path | None = None,
    *,
    cache: Path | None = None,
    rounds: int = 3,
    threads: int = 2,
    compiled: bool | None = None,
) -> Iterator[Row]:
    """Measure every form in turn, `rounds` times: best times, median ratios.

    Args:
        recipe: whose training step.
        data: folder of its data set; generated scenes need none.
        cache: folder of features; a recipe on frozen features is then also measured without it.
        rounds: interleaved runs.
        threads: of the network.
        compiled: also through `torch.compile`; default: where there is a C++ compiler.

    Yields:
        The plain loop, the engine's step, and the plain loop in other forms; reading is part of all.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batch, context = recipe.schedule.batch, RunContext(data, cache=cache if recipe.training.cache else None)
    samples = recipe.training_samples(context, recipe.data.train)
    model = recipe.build(len(samples.classes), pretrained=False)
    task = recipe.training_task(samples.classes, context)
    if compiled is None:
        compiled = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    plain = {
        "plain loop": _Loop(recipe, deepcopy(model), task, samples),
        "plain loop, channels last": _Loop(recipe, deepcopy(model), task, samples, last=True),
    }
    if compiled:
        plain["plain loop, compiled"] = _Loop(recipe, deepcopy(model), task, samples, compiled=True)
    calls: dict[str, Callable[[], object]] = {form: loop.step for form, loop in plain.items()}
    calls["engine"] = _engine_step(recipe, deepcopy(model), task, samples)
    if recipe.training.cache and cache is not None:
        uncached = recipe.training_samples(RunContext(data), recipe.data.train)
        plain["plain loop, without the cache"] = _Loop(recipe, deepcopy(model), task, uncached)
        calls["plain loop, without the cache"] = plain["plain loop, without the cache"].step
    for call in calls.values():  # the first step compiles, allocates, and opens files
        call()
    for loop in plain.values():
        loop.forget()
    for form, compared in compare_times(calls, rounds).items():
        parts = plain[form].best if form in plain else None
        yield Row(form, batch / compared.seconds, compared.ratio, parts)


def read_batch(samples: Samples, batch: int) -> Any:
    """A batch as the engine's loader makes it, in this process."""
    chosen = [samples[(index % len(samples), 0)] for index in range(batch)]
    collate = getattr(samples, "collate", default_collate)
    return collate(chosen)


class _Loop:
    """What one would write by hand, timed part by part."""

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        task: Task,
        samples: Samples,
        *,
        last: bool = False,
        compiled: bool = False,
    ) -> None:
        freeze(model, recipe.training.frozen)
        set_training_mode(model, recipe.training.frozen_statistics)
        optim = recipe.optim
        groups = parameter_groups(model, optim.weight_decay, optim.no_decay, optim.decay_norms)
        self.optimizer = build_optimizer(optim.kind, groups, optim.momentum, optim.nesterov)
        self.model: Any = convert_to_channels_last(model) if last else model
        if compiled:
            self.model = torch.compile(self.model)
        self.task, self.samples, self.batch, self.last = task, samples, recipe.schedule.batch, last
        self.forget()

    def forget(self) -> None:
        """Begin to measure anew."""
        self.best = dict.fromkeys(PARTS, inf)

    def step(self) -> None:
        """Read a batch, go forward and back, and update the weights."""
        times = [perf_counter()]
        batch = read_batch(self.samples, self.batch)
        if self.last:
            batch = type(batch)(*(to_channels_last(x) if isinstance(x, torch.Tensor) else x for x in batch))
        times.append(perf_counter())
        loss = torch.stack(list(self.task.losses(self.model, batch).values())).sum()
        times.append(perf_counter())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        times.append(perf_counter())
        self.optimizer.step()
        times.append(perf_counter())
        for part, start, stop in zip(PARTS, times, times[1:], strict=False):
            self.best[part] = min(self.best[part], stop - start)


def _engine_step(recipe: Recipe, model: nn.Module, task: Task, samples: Samples) -> Callable[[], object]:
    settings = recipe.settings()
    run = Run(model, settings, _CPU)

    def step() -> None:
        training_step(task, run, [read_batch(samples, settings.batch)], recipe.optim.lr, settings, stop=False)

    return step
