"""Train a recipe into a folder: refuse early what cannot work, go on where a run of the same recipe stopped."""

import platform
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

import dnlnet
from dnlnet.engine import distributed
from dnlnet.engine.optim import LearningRate
from dnlnet.engine.run import Settings
from dnlnet.engine.train import Outcome, Progress, Stage, train
from dnlnet.files import written_whole
from dnlnet.recipes.build import builder_of
from dnlnet.recipes.feasible import require_feasible
from dnlnet.recipes.model_file import about
from dnlnet.recipes.schema import Recipe

RUN_FILE = "run.yaml"


def train_recipe(
    recipe: Recipe,
    data: Path | None,
    out: Path,
    *,
    seed: int = 0,
    workers: int = 0,
    unpacked: Path | None = None,
    skip_nonfinite: int = 0,
    progress: Callable[[Progress], None] = lambda _: None,
    report: Callable[[str], None] = print,
) -> Outcome:
    """Train, evaluate and keep the models of a recipe.

    Args:
        recipe: what to train.
        data: folder of its data set; generated scenes need none.
        out: folder of the run; one that holds a run of the same recipe and seed is continued.
        seed: of everything random.
        workers: processes that read data, for each process that trains.
        unpacked: folder to keep decoded pictures in.
        skip_nonfinite: iterations that may be left out because their loss is not finite.
        progress, report: see `dnlnet.engine.train.train`.
    """
    with distributed.process_group() as device:
        say = report if distributed.is_main() else lambda _: None
        build = builder_of(recipe)
        classes = build.find_classes(recipe, data)
        require_feasible(recipe, len(classes), workers, device)
        validation = build.build_validation_data(recipe, data)
        stages = _stages(recipe, data, seed, unpacked, say)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = not (out / "checkpoints").exists()
            model = build.build_model(recipe.model, len(classes), weights=fresh, report=say)
        if distributed.is_main():
            _require_space(out, model, recipe.training.keep)
            _claim(out, _description(recipe, data, seed))
        distributed.wait_for_all()
        task = build.build_task(recipe, classes, validation, distributed.mean_over_processes, device, report)
        return train(
            task,
            model,
            stages,
            _settings(recipe, seed, workers, skip_nonfinite),
            out,
            device=device,
            validation=validation,
            metadata=about(recipe, classes),
            progress=progress,
            report=say,
        )


def _stages(
    recipe: Recipe, data: Path | None, seed: int, unpacked: Path | None, report: Callable[[str], None]
) -> list[Stage]:
    schedule = recipe.schedule

    def rate(iterations: int) -> LearningRate:
        milestones, warmup = schedule.milestones, schedule.warmup
        return LearningRate(schedule.kind, iterations, schedule.power, milestones, warmup, schedule.warmup_start)

    build = partial(builder_of(recipe).build_training_data, recipe, data, seed=seed, unpacked=unpacked, report=report)
    first, later = build(), [build(split=phase.train) for phase in schedule.then]
    return [
        Stage(first, schedule.iterations, recipe.optim.lr, rate(schedule.iterations)),
        *(
            Stage(samples, phase.iterations, phase.lr, rate(phase.iterations))
            for samples, phase in zip(later, schedule.then, strict=True)
        ),
    ]


def _settings(recipe: Recipe, seed: int, workers: int, skip_nonfinite: int) -> Settings:
    optim = recipe.optim.model_dump(exclude={"lr"})
    return Settings(
        batch=recipe.schedule.batch,
        accumulate=recipe.schedule.accumulate,
        seed=seed,
        workers=workers,
        skip_nonfinite=skip_nonfinite,
        **optim,
        **recipe.training.model_dump(),
    )


def _description(recipe: Recipe, data: Path | None, seed: int) -> dict[str, Any]:
    return {
        "recipe": recipe.model_dump(mode="json"),
        "seed": seed,
        "data": None if data is None else str(data.resolve()),
        "versions": {
            "dnlnet": dnlnet.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        "commit": _commit(),
    }


def _claim(out: Path, description: dict[str, Any]) -> None:
    """Write `run.yaml`, or see that the one that is there is of the same recipe and seed."""
    path = out / RUN_FILE
    if path.exists():
        before = yaml.safe_load(path.read_text())
        for key in ("recipe", "seed"):
            if (change := _difference(before[key], description[key], key)) is not None:
                raise ValueError(f"{out} holds another run: {change}; choose another --out, or delete it")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not the folder of a run; choose another --out")
    with written_whole(path) as temporary:
        temporary.write_text(
            yaml.safe_dump(description, sort_keys=False, allow_unicode=True, default_flow_style=None)
        )


def _difference(before: Any, now: Any, where: str) -> str | None:
    """The first value that differs, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        changes = (_difference(before.get(key), now.get(key), f"{where}.{key}") for key in {**before, **now})
        return next((change for change in changes if change is not None), None)
    return None if before == now else f"its {where} is {before}, not {now}"


def _require_space(out: Path, model: nn.Module, keep: int) -> None:
    """A checkpoint holds the weights twice (momentum) or three times (average); one more while it is written."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    needed = weights * (3 * (keep + 1) + 3)
    free = shutil.disk_usage(next(place for place in (out, *out.resolve().parents) if place.exists())).free
    if free < needed:
        raise OSError(f"{out}: {free / 1e9:.1f} GB free, but checkpoints and models may take {needed / 1e9:.1f} GB")


def _commit() -> str | None:
    """The commit of the package's own repository, if it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
