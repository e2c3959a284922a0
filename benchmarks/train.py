"""Compare the engine's training step with a plain loop over the same network, and show where the time goes.

Example: python benchmarks/train.py camvid-mbv2_frozen-dnl --data camvid --cache features
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from dnlnet.bench.block import describe_machine
from dnlnet.bench.timing import compare_times
from dnlnet.cli.terminal.tables import print_table
from dnlnet.data.catalog import Samples
from dnlnet.engine import distributed
from dnlnet.engine.optim import build_optimizer, freeze, parameter_groups, set_training_mode
from dnlnet.engine.run import Run
from dnlnet.engine.task import Task
from dnlnet.engine.train import training_step, verify
from dnlnet.files import write_json
from dnlnet.layout import convert_to_channels_last, to_channels_last
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import find_recipe, parse_recipe

PARTS = ("reading", "forward", "backward", "update")


@dataclass(frozen=True)
class StepRate:
    """Speed of one form of the training step.

    Args:
        form: Name of the form.
        images_per_second: Rate of its best step.
        ratio: Median over rounds of its time relative to the plain loop, or None unless the two were interleaved.
        parts: Best seconds of each of `PARTS`, or None if they cannot be separated.
    """

    form: str
    images_per_second: float
    ratio: float | None = None
    parts: dict[str, float] | None = None


def main() -> None:
    """Measure every form, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="scenes-tiny-dnl", help="recipe of the training step")
    parser.add_argument("--data", type=Path, help="folder of the data set")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE, may be repeated")
    parser.add_argument("--cache", type=Path, help="folder of features")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs: best times, median ratios")
    parser.add_argument("--threads", type=int, default=2, help="threads of the network")
    parser.add_argument(
        "--compiled", action=argparse.BooleanOptionalAction, default=True, help="also measure torch.compile"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="also measure N processes, sharing batch and threads"
    )
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    recipe = override(find_recipe(given.recipe), given.settings)
    batch = recipe.schedule.batch
    if batch % given.processes:
        parser.error(f"a batch of {batch} cannot be divided among {given.processes} processes")
    print(f"{given.recipe}, {batch} images per step; this takes a minute or more")
    compiled = given.compiled and any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    measured = bench_train(
        recipe, given.data, cache=given.cache, rounds=given.rounds, threads=given.threads, compiled=compiled
    )
    rows = list(measured)
    for count in (1, given.processes) if given.processes > 1 else ():
        seconds = seconds_per_step(recipe, given.data, given.cache, count, given.threads, given.rounds)
        rows.append(StepRate(f"engine, {count} process{'es' if count > 1 else ''}", batch / seconds))
    machine = describe_machine(given.threads)
    print_table(
        f"Training step of {given.recipe}, {batch} images",
        [
            {
                "form": row.form,
                "images/s": f"{row.images_per_second:.1f}",
                "time": "-" if row.ratio is None else f"{row.ratio:.2f}",
                **{f"{part} ms": "-" if row.parts is None else f"{1e3 * row.parts[part]:.1f}" for part in PARTS},
            }
            for row in rows
        ],
        caption=f"time: over that of the plain loop, median of rounds; {machine}",
    )
    if given.json is not None:
        rows_json = [asdict(row) for row in rows]
        write_json(given.json, {"machine": machine, "recipe": given.recipe, "rows": rows_json})
        print(f"written: {given.json}")


def bench_train(
    recipe: Recipe, data: Path | None, *, cache: Path | None, rounds: int, threads: int, compiled: bool
) -> Iterator[StepRate]:
    """Yield the rates of the plain loop, its other forms and the engine's step, all including reading.

    Args:
        recipe: Recipe of the training step.
        data: Folder of the data set; generated scenes need none.
        cache: Folder of cached features; a recipe on frozen features is also measured without it.
        rounds: Number of interleaved rounds.
        threads: Threads of the network.
        compiled: Also measure `torch.compile`.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batch, context = recipe.schedule.batch, RunContext(data, cache=cache if recipe.training.cache else None)
    samples = recipe.training_samples(context, recipe.data.train)
    model = recipe.build(len(samples.classes), pretrained=False)
    task = recipe.training_task(samples.classes, context)
    plain = {
        "plain loop": _Loop(recipe, deepcopy(model), task, samples),
        "plain loop, channels last": _Loop(recipe, deepcopy(model), task, samples, last=True),
    }
    if compiled:
        plain["plain loop, compiled"] = _Loop(recipe, deepcopy(model), task, samples, compiled=True)
    calls: dict[str, Callable[[], object]] = {form: loop.step for form, loop in plain.items()}
    calls["engine"] = _engine_step(recipe, deepcopy(model), task, samples, torch.device("cpu"))
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
        yield StepRate(form, batch / compared.seconds, compared.ratio, parts)


def read_batch(samples: Samples, batch: int) -> Any:
    """Return a batch like the engine's loader, in this process."""
    chosen = [samples[(index % len(samples), 0)] for index in range(batch)]
    collate = getattr(samples, "collate", default_collate)
    return collate(chosen)


class _Loop:
    """Hand-written training loop with each part timed."""

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
        self.optimizer = build_optimizer(parameter_groups(model, recipe.optim), recipe.optim)
        self.model: Any = convert_to_channels_last(model) if last else model
        if compiled:
            self.model = torch.compile(self.model)
        self.task, self.samples, self.batch, self.last = task, samples, recipe.schedule.batch, last
        self.forget()

    def forget(self) -> None:
        """Discard the times measured so far."""
        self.best = dict.fromkeys(PARTS, inf)

    def step(self) -> None:
        """Read a batch, run forward and backward, and update the weights."""
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


def _engine_step(
    recipe: Recipe, model: nn.Module, task: Task, samples: Samples, device: torch.device, share: int = 1
) -> Callable[[], object]:
    """Return one step of the engine on 1/`share` of the batch."""
    settings = recipe.settings()
    run = Run(model, settings, device)

    def step() -> None:
        batch = read_batch(samples, settings.schedule.batch // share)
        verify(run, training_step(task, run, [batch], recipe.optim.lr, stop=False))

    return step


def seconds_per_step(
    recipe: Recipe, data: Path | None, cache: Path | None, processes: int, threads: int, rounds: int
) -> float:
    """Return the best time of a step on the whole batch, in processes started by torchrun."""
    task = {
        "recipe": recipe.model_dump_json(),
        "data": None if data is None else str(data),
        "cache": None if cache is None else str(cache),
        "threads": max(1, threads // processes),
        "rounds": rounds,
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run([*launch, __file__, "--child", json.dumps(task)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"the measured processes failed: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.split()[-1])


def _measure_step(text: str) -> None:
    task = json.loads(text)
    torch.set_num_threads(task["threads"])
    recipe = parse_recipe(task["recipe"])
    data, cache = (None if task[name] is None else Path(task[name]) for name in ("data", "cache"))
    with distributed.process_group() as device:
        context = RunContext(data, cache=cache)
        samples = recipe.training_samples(context, recipe.data.train)
        torch.manual_seed(0)
        model = recipe.build(len(samples.classes), pretrained=False)
        losses = recipe.training_task(samples.classes, context)
        step = _engine_step(recipe, model, losses, samples, device, share=distributed.world_size())
        step()
        seconds = []
        for _ in range(task["rounds"]):  # a count instead of a time limit: every process takes part in every step
            start = perf_counter()
            step()
            seconds.append(perf_counter() - start)
        if distributed.is_main():
            print(min(seconds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _measure_step(sys.argv[2])
    else:
        main()
