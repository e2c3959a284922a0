"""How fast the engine's training step is in one process with all threads, and in several that share them."""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import torch

from dnlnet.bench.train import read_batch
from dnlnet.engine import distributed
from dnlnet.engine.run import Run
from dnlnet.engine.train import training_step
from dnlnet.recipes.schema import Recipe
from dnlnet.recipes.context import RunContext
from dnlnet.registry import parse_recipe


def seconds_per_step(
    recipe: Recipe, data: Path | None, *, cache: Path | None, processes: int, threads: int, rounds: int
) -> float:
    """The best time of a step of the whole batch, in processes that torchrun starts.

    Args:
        recipe: whose training step; its batch is shared among the processes.
        data: folder of its data set.
        cache: folder of features, filled already.
        processes: how many.
        threads: of all processes together.
        rounds: steps to take the best of.
    """
    if recipe.schedule.batch % processes:
        raise ValueError(f"a batch of {recipe.schedule.batch} cannot be shared by {processes} processes")
    task = {
        "recipe": recipe.model_dump_json(),
        "data": None if data is None else str(data),
        "cache": None if cache is None else str(cache),
        "threads": max(1, threads // processes),
        "rounds": rounds,
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launch, "-m", "dnlnet.bench.train_processes", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"the processes that were measured failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


def _measure(text: str) -> None:
    task = json.loads(text)
    torch.set_num_threads(task["threads"])
    recipe = parse_recipe(task["recipe"])
    data, cache = (None if task[name] is None else Path(task[name]) for name in ("data", "cache"))
    with distributed.process_group() as device:
        settings, run_context = recipe.settings(), RunContext(data, cache=cache)
        samples = recipe.training_samples(run_context, recipe.data.train)
        torch.manual_seed(0)
        model = recipe.build(len(samples.classes), pretrained=False)
        losses, run = recipe.training_task(samples.classes, run_context), Run(model, settings, device)
        share = settings.batch // distributed.world_size()

        def step() -> None:
            training_step(losses, run, [read_batch(samples, share)], recipe.optim.lr, settings, stop=False)

        step()
        seconds = []
        for _ in range(task["rounds"]):  # by count, not by the clock: every process takes part in every step
            start = perf_counter()
            step()
            seconds.append(perf_counter() - start)
        if distributed.is_main():
            print(min(seconds))


if __name__ == "__main__":
    _measure(sys.argv[1])
