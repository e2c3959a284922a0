"""Training loop: batch, losses, backward, step, log, evaluate, save."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.engine import distributed
from dnlnet.engine.batches import Batches, GroupedBatches
from dnlnet.engine.checkpoint import Checkpoint, Checkpoints, random_states, restore_random_states
from dnlnet.engine.evaluate import evaluate
from dnlnet.engine.loading import explain_worker_death, load_batches, to_device, to_host
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


@dataclass(frozen=True)
class Step:
    """Training step that the device may still be computing.

    Args:
        iteration: Its iteration, counted from 1.
        lr: Its learning rate.
        losses: Names of the losses.
        files: File names of each micro-batch.
        checks: Function that waits for the step. It returns, for each micro-batch, the losses, the largest batch-norm
            statistic and the share of processes asked to stop; then, unless it was skipped, the gradient's norm.
    """

    iteration: int
    lr: float
    losses: Sequence[str]
    files: Sequence[Sequence[str]]
    checks: Callable[[], Tensor]


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

        shown = ""

        def finish(step: Step | None) -> bool:
            """Wait for a step, log it, and return whether a process was asked to stop."""
            nonlocal shown
            if step is None:
                return False
            losses, stopping = verify(run, step)
            log.write("train", step.iteration, {**(losses or {"skipped": float(run.skipped)}), "lr": step.lr})
            if not losses:
                left = settings.skip_nonfinite - run.skipped
                progress.say(f"iteration {step.iteration}: skipped, not finite; at most {left} more may be")
            shown = f"{f'loss {sum(losses.values()):.3f}' if losses else 'skipped'}  lr {step.lr:.2g}"
            return stopping

        stopped = run.unscored and conclude(False)
        seconds: deque[float] = deque(maxlen=_ITERATIONS_OF_A_SPEED)
        planned, took = False, 0.0
        previous: Step | None = None  # read while the device computes the next one
        start_time = perf_counter()
        for number, lr, micro_batches in () if stopped else iterations:
            if number >= reached:
                run.unfreeze(stages[number].unfrozen)
                reached = number + 1
            try:
                step: Step | None = training_step(task, run, micro_batches, lr, stop.received is not None)
            finally:  # also if this step failed, because damage in the previous one may be the reason
                stopping = finish(previous)
            run.iteration += 1
            every, end = settings.training.evaluate_every, stages[number].start + stages[number].iterations
            at_once = run.iteration in (began + 1, end)  # the first one too, because its set-up takes time of its own
            if stopping or at_once or run.iteration % every == 0 or run.iteration % settings.training.save_every == 0:
                stopping, step = finish(step) or stopping, None
            previous = step
            seconds.append(perf_counter() - start_time)
            took += seconds[-1]
            speed = settings.schedule.batch * len(seconds) / sum(seconds)
            done.advance(note=f"{shown}  {speed_text(speed)} {unit}/s")
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


def training_step(task: Task, run: Run, micro_batches: Sequence[Any], lr: float, stop: bool) -> Step:
    """Update the weights once, without waiting for the device. Call `verify` before using them outside training.

    A loss, statistic or gradient that is not finite may damage the weights: `verify` then ends the run, whose
    checkpoints are intact. With `skip_nonfinite`, weights and statistics instead stay unchanged. The host then waits
    to decide this after each micro-batch, because AdamW counts its steps on the host.
    """
    settings = run.settings
    set_training_mode(run.model, settings.training.frozen_statistics)
    run.optimizer.zero_grad(set_to_none=True)
    before = run.statistics() if settings.skip_nonfinite else []
    checks: list[Tensor] = []
    files: list[Sequence[str]] = []

    def must_skip() -> bool:
        return settings.skip_nonfinite > 0 and not checks[-1].isfinite().all()

    for number, batch in enumerate(micro_batches, start=1):
        files.append(task.names(batch))
        batch = to_device(batch, run.device, channels_last=settings.training.channels_last)
        with run.reducing(number == len(micro_batches)):
            with run.autocast():
                losses = task.losses(run.model, batch)
            asked = torch.full((), float(stop), device=run.device)
            values = [*(loss.detach().float() for loss in losses.values()), run.largest_statistic(), asked]
            checks.append(distributed.mean_over_processes(torch.stack(values)))
            if must_skip():
                break
            run.scaler.scale(torch.stack(list(losses.values())).sum() / len(micro_batches)).backward()
    else:
        checks.append(run.clip().reshape(1))
    if must_skip():
        run.restore_statistics(before)
        run.optimizer.zero_grad(set_to_none=True)
    else:
        run.update(lr)
    return Step(run.iteration + 1, lr, list(losses), files, to_host(torch.cat(checks)))


def verify(run: Run, step: Step) -> tuple[dict[str, float], bool]:
    """Wait for a step. Return its mean losses over all processes, and whether any process was asked to stop.

    The losses are empty if the step was skipped. Raises if a loss, a statistic or the gradient is not finite more
    often than `skip_nonfinite` allows.
    """
    checks = iter(step.checks().tolist())
    totals: dict[str, float] = {}
    stopping = False
    damage: str | None = None
    for files in step.files:
        *means, statistic, asked = islice(checks, len(step.losses) + 2)
        stopping = stopping or asked > 0
        found = dict(zip(step.losses, means, strict=True))
        totals = {name: totals.get(name, 0.0) + mean / len(step.files) for name, mean in found.items()}
        where = ", ".join(files)
        if not all(map(isfinite, means)):
            damage = f"the loss is not finite ({found})"
        elif not isfinite(statistic):
            damage = "the batch-norm statistics are not finite"
        if damage is not None:
            break
    else:
        if not all(map(isfinite, checks)):
            damage = "the gradient is not finite"
    if damage is None:
        return totals, stopping
    run.skipped += 1
    if run.skipped > run.settings.skip_nonfinite:
        advice = "lower the learning rate, or allow some with --skip-nonfinite"
        raise _not_finite(run, step.iteration, f"{damage} on {where}", advice)
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
