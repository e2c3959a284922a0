"""Training loop: batch, losses, backward, step, log, evaluate, save."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from dnlnet.engine import distributed
from dnlnet.engine.batches import Batches, GroupedBatches
from dnlnet.engine.checkpoint import Checkpoint, Checkpoints, random_states, restore_random_states
from dnlnet.engine.evaluate import evaluate
from dnlnet.engine.loading import explain_worker_death, load_batches, to_device
from dnlnet.engine.log import LOG_FILE, RunLog
from dnlnet.engine.optim import set_training_mode
from dnlnet.engine.plan import is_measured, plan_text, speed_text
from dnlnet.engine.run import Run, save_model
from dnlnet.engine.settings import RunSettings
from dnlnet.engine.task import Data, Task
from dnlnet.files import json_text
from dnlnet.progress import SILENT, Progress
from dnlnet.signals import catch_stop_signals

CHECKPOINTS = "checkpoints"
_ITERATIONS_OF_A_SPEED = 20


@dataclass(frozen=True)
class Stage:
    """Stage of a run: its data, first iteration, number of iterations, base learning rate, and unfrozen layers."""

    data: Data
    start: int
    iterations: int
    lr: float
    unfrozen: tuple[str, ...] = ()  # name prefixes of parameters that are trained from here on


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: its last iteration, completion, best score, and the signal that stopped it."""

    iteration: int
    finished: bool
    best: float | None
    signal: int | None
    began: int = 0  # iteration that the run resumed from


class NonFiniteError(ValueError):
    """Error for a loss, statistic, gradient or weight that is NaN or infinite."""


def train(
    task: Task,
    model: nn.Module,
    training: Sequence[Data],
    settings: RunSettings,
    folder: Path,
    *,
    device: torch.device,
    start: Checkpoint | None = None,
    validation: Data | None = None,
    metadata: Mapping[str, str] | None = None,
    unit: str = "samples",
    progress: Progress = SILENT,
) -> Outcome:
    """Train until the last stage ends or a signal asks to stop. A stopped run can resume from its last checkpoint.

    Args:
        task: Losses and metric.
        model: Model, initialised identically in every process.
        training: Data of the first stage and of each later phase of the schedule.
        settings: Settings of the run.
        folder: Folder for checkpoints, the log, `best.safetensors` and `last.safetensors`.
        device: Device of the model.
        start: Checkpoint to resume from; see `resume_point`.
        validation: Data to evaluate on. Default: no evaluation, hence no best model.
        metadata: Metadata of the model files.
        unit: Name of the samples, for the speed beside the progress bar.
        progress: Observer of iterations, evaluations and messages.
    """
    stages = _stages(training, settings)
    total = settings.schedule.total
    checkpoints = Checkpoints(folder / CHECKPOINTS, settings.training.keep)
    run = Run(model, settings, device)
    reached = 0 if start is None else sum(stage.start < start.iteration for stage in stages)
    for stage in stages[:reached]:
        run.unfreeze(stage.unfrozen)
    if start is not None:
        run.restore(start)
        progress.say(f"resuming from iteration {run.iteration} of {total}")
    elif (folder / LOG_FILE).exists():
        progress.say(f"{folder}: no intact checkpoint to resume from; starting from the beginning")
    distributed.barrier()  # all processes must read before the main one writes
    main = distributed.is_main()
    began = run.iteration
    log = RunLog(folder, began, evaluated=not run.unscored, written=run.log, quiet=not main, progress=progress)
    iterations = _iterations(stages, settings, began)
    with (
        log,
        explain_worker_death(),
        catch_stop_signals() as stop,
        closing(iterations),
        progress.track("training", total, start=began, unit="iteration") as done,
    ):

        def conclude(stopping: bool) -> bool:
            """Evaluate and save if due after an iteration, and return whether to stop there."""
            last = run.iteration == total
            due = last or run.iteration % settings.training.save_every == 0
            if run.unscored or due or stopping:
                _require_finite_weights(run)
            if run.unscored and validation is not None and not stopping:
                found = _evaluate_run(task, run, validation, log, progress, lambda: stop.received is not None)
                stopping = found is None
                if found is not None and run.is_best(next(iter(found[0].values()))):
                    scores, details = found
                    scored = {**(metadata or {}), "scores": json_text(scores)}
                    if "by_class" in details:
                        scored["by_class"] = json_text(details["by_class"])
                    save_model(folder / "best.safetensors", run, scored)
            if due or stopping:
                run.log = log.digest
                state = run.checkpoint()
                if main:
                    about = {"iteration": json_text(run.iteration), "prefix": run.prefix}
                    checkpoints.save(state, {**(metadata or {}), **about})
            return stopping and (run.unscored or not last)

        stopped = run.unscored and conclude(False)
        seconds: deque[float] = deque(maxlen=_ITERATIONS_OF_A_SPEED)
        planned, took = False, 0.0
        start_time = perf_counter()
        for number, lr, micro_batches in () if stopped else iterations:
            if number >= reached:
                run.unfreeze(stages[number].unfrozen)
                reached = number + 1
            losses, stopping = training_step(task, run, micro_batches, lr, stop.received is not None)
            run.iteration += 1
            log.write("train", run.iteration, {**(losses or {"skipped": float(run.skipped)}), "lr": lr})
            if not losses:
                left = settings.skip_nonfinite - run.skipped
                progress.say(f"iteration {run.iteration}: skipped, not finite; at most {left} more may be")
            seconds.append(perf_counter() - start_time)
            took += seconds[-1]
            speed = settings.schedule.batch * len(seconds) / sum(seconds)
            loss = f"loss {sum(losses.values()):.3f}" if losses else "skipped"
            done.advance(note=f"{loss}  lr {lr:.2g}  {speed_text(speed)} {unit}/s")
            every = settings.training.evaluate_every
            if not planned and is_measured(run.iteration - began, took):
                planned = True
                scored = None if validation is None else min(total, -(-run.iteration // every) * every)
                progress.say(plan_text(seconds, run.iteration, total, scored, folder))
            due = run.iteration == total or run.iteration % every == 0
            run.unscored = due and validation is not None
            if stopped := conclude(stopping):
                break
            start_time = perf_counter()
        if stopped:
            return Outcome(run.iteration, False, run.best, stop.received, began)
    if run.skipped:
        progress.say(
            f"{run.skipped} of {total} iterations were skipped: a loss, statistic or gradient was not finite"
        )
    save_model(folder / "last.safetensors", run, metadata or {})
    return Outcome(run.iteration, True, run.best, None, began)


def resume_point(folder: Path, progress: Progress = SILENT) -> Checkpoint | None:
    """Return the newest intact checkpoint in the folder of a run, the same in every process, or None."""
    checkpoint = Checkpoints(folder / CHECKPOINTS).latest(progress)
    found = distributed.gather(None if checkpoint is None else checkpoint.iteration)
    if any(iteration != found[0] for iteration in found):
        raise OSError(f"{folder}: the processes found checkpoints of different iterations, {found}; share the folder")
    return checkpoint


def _evaluate_run(
    task: Task,
    run: Run,
    validation: Data,
    log: RunLog,
    progress: Progress,
    stop: Callable[[], bool],
) -> tuple[dict[str, float], Mapping[str, Any]] | None:
    """Evaluate, log, and return the scores and details. If interrupted, return None and leave the run unchanged."""
    before = random_states(run.device)
    metric = evaluate(
        task,
        run.model_to_save(),
        validation,
        device=run.device,
        workers=run.settings.workers,
        progress=progress,
        stop=stop,
    )
    if metric is None:
        restore_random_states(*before, run.device)
        return None
    run.unscored = False
    scores: dict[str, float] = metric.scores()
    details = task.details(metric)
    log.write("evaluation", run.iteration, {**scores, **details})
    progress.say(f"iteration {run.iteration}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    return scores, details


def training_step(
    task: Task, run: Run, micro_batches: Sequence[Any], lr: float, stop: bool
) -> tuple[dict[str, float], bool]:
    """Update the weights once.

    Returns the mean losses over all processes, and True if any process was asked to stop. If a loss, a statistic or
    the gradient is not finite, weights and statistics stay unchanged and the losses are empty. Raises if this happens
    more often than `skip_nonfinite` allows.
    """
    settings = run.settings
    set_training_mode(run.model, settings.training.frozen_statistics)
    run.optimizer.zero_grad(set_to_none=True)
    before = run.statistics() if settings.skip_nonfinite else []
    totals: dict[str, float] = {}
    stopping = False
    damage: str | None = None
    for number, batch in enumerate(micro_batches, start=1):
        batch = to_device(batch, run.device, channels_last=settings.training.channels_last)
        with run.reducing(number == len(micro_batches)):
            with run.autocast():
                losses = task.losses(run.model, batch)
            asked = torch.tensor(float(stop), device=run.device)
            values = [*(loss.detach().float() for loss in losses.values()), run.largest_statistic(), asked]
            *means, statistic, asking = distributed.mean_over_processes(torch.stack(values)).tolist()
            stopping = stopping or asking > 0
            found = dict(zip(losses, means, strict=True))
            totals = {name: totals.get(name, 0.0) + mean / len(micro_batches) for name, mean in found.items()}
            if not all(map(isfinite, means)):
                damage = f"the loss is not finite ({found})"
            elif not isfinite(statistic):
                damage = "the batch-norm statistics are not finite"
            if damage is not None:
                break
            run.scaler.scale(torch.stack(list(losses.values())).sum() / len(micro_batches)).backward()
    if damage is None and run.update(lr):
        return totals, stopping
    run.skipped += 1
    if run.skipped > settings.skip_nonfinite:
        what = f"{damage or 'the gradient is not finite'} on {', '.join(task.names(batch))}"
        raise _not_finite(
            run, run.iteration + 1, what, "lower the learning rate, or allow some with --skip-nonfinite"
        )
    run.restore_statistics(before)
    run.optimizer.zero_grad(set_to_none=True)
    return {}, stopping


def _require_finite_weights(run: Run) -> None:
    """Raise if weights are NaN or infinite, so that they are neither evaluated nor saved."""
    for name, value in run.model_to_save().named_parameters():
        if not value.isfinite().all():
            raise _not_finite(run, run.iteration, f"{name} is no longer finite", "lower the learning rate")


def _not_finite(run: Run, iteration: int, what: str, advice: str) -> NonFiniteError:
    intact = f"the last checkpoint is intact (iteration {run.saved})"
    return NonFiniteError(f"iteration {iteration}: {what}; {intact}; {advice}")


def _stages(training: Sequence[Data], settings: RunSettings) -> list[Stage]:
    """Return the first stage and one stage for each later phase of the schedule."""
    stages = [Stage(training[0], 0, settings.schedule.iterations, settings.optim.lr)]
    for data, phase in zip(training[1:], settings.schedule.then, strict=True):
        start = stages[-1].start + stages[-1].iterations
        stages.append(Stage(data, start, phase.iterations, phase.lr, phase.unfrozen))
    return stages


def _iterations(
    stages: Sequence[Stage], settings: RunSettings, start: int
) -> Generator[tuple[int, float, list[Any]], None, None]:
    """Yield stage number, learning rate and micro-batches of each iteration from `start` on."""
    for number, stage in enumerate(stages):
        first = max(0, start - stage.start)
        if first >= stage.iterations:
            continue
        parts = settings.schedule.accumulate
        numbers = (
            settings.schedule.batch // parts,
            first * parts,
            stage.iterations * parts,
            settings.seed + number,
            distributed.rank(),
            distributed.world_size(),
        )
        groups = getattr(stage.data, "groups", None)  # a batch contains samples of one group only
        batches = Batches(len(stage.data), *numbers) if groups is None else GroupedBatches(groups, *numbers)
        with closing(load_batches(stage.data, settings.workers, batch_sampler=batches)) as samples:
            for iteration in range(first, stage.iterations):
                lr = stage.lr * settings.schedule.factor(iteration, stage.iterations)
                yield number, lr, [next(samples) for _ in range(parts)]
