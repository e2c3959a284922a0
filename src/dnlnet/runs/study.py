"""A study: every recipe with every seed, each a run of its own, and what came of them side by side."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import Any

import torch

from dnlnet.artifacts.load import load_network
from dnlnet.artifacts.model_file import read_model_file, shareable
from dnlnet.engine.log import read_log
from dnlnet.files import make_folder, write_json
from dnlnet.lens.measure.consistency import RANDOM
from dnlnet.lens.trace.capture import blocks_of
from dnlnet.progress import SILENT
from dnlnet.recipes.override import override
from dnlnet.recipes.schema import Recipe
from dnlnet.registry import match_recipes, parse_recipe
from dnlnet.runs.consistency import measure_consistency
from dnlnet.runs.run_folder import CACHE
from dnlnet.runs.train import train
from dnlnet.signals import StopSignal, exit_on_stop_signals, handle_stop_signals

RESULTS = "results"  # a file for each run that is done
RUNS = "runs"


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    recipe: Recipe
    seed: int

    @property
    def name(self) -> str:
        """Of its folder and of its result."""
        return f"{self.recipe.name}-{self.seed}"

    @property
    def settings(self) -> str:
        """What tells the settings of two runs apart; a setting that recipes get later leaves it as it is."""
        text = shareable(self.recipe).model_dump_json(exclude={"paper", "measured"}, exclude_defaults=True)
        return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class State:
    """How far a run of a study is."""

    job: Job
    iteration: int
    iterations: int
    score: float | None
    begun: bool
    done: bool


def plan(patterns: Sequence[str], seeds: int, settings: Sequence[str] = (), *, first_seed: int = 0) -> list[Job]:
    """Every run: of each seed all recipes, so that a study that is stopped has whole seeds.

    Args:
        patterns: names of recipes, or patterns with ``*``.
        seeds: how many.
        settings: values that replace those of every recipe.
        first_seed: the others follow it.

    >>> [job.name for job in plan(["scenes-tiny-nl", "scenes-tiny-dnl"], 2)]
    ['scenes-tiny-nl-0', 'scenes-tiny-dnl-0', 'scenes-tiny-nl-1', 'scenes-tiny-dnl-1']
    """
    recipes = {recipe.name: override(recipe, settings) for pattern in patterns for recipe in match_recipes(pattern)}
    if len({recipe.task for recipe in recipes.values()}) > 1:
        raise ValueError("a study compares recipes of one task")
    return [Job(recipe, seed) for seed in range(first_seed, first_seed + seeds) for recipe in recipes.values()]


def run_study(
    jobs: Sequence[Job],
    data: Path | None,
    out: Path,
    *,
    cache: Path | None = None,
    processes: int | None = None,
    width: int = 2,
    void_edges: bool = False,
    done: Callable[[Job, str | None], None] = lambda job, problem: None,
) -> list[str]:
    """Run what is not done yet, one process for each core; return what went wrong, by run.

    Args:
        jobs: from `plan`.
        data: folder of the data set.
        out: folder of the study; a run that was stopped resumes, one with a result is not run again.
        cache: folder of features; default: in the study's own.
        processes: runs at a time; default: one for each core.
        width: of boundaries, in pixels, for the overlaps of attention.
        void_edges: contours between a class and unlabelled pixels are boundaries as well.
        done: called after each run, with what went wrong, if anything did.
    """
    make_folder(out)
    waiting = [job for job in jobs if not _is_done(job, out, width, void_edges)]
    problems: list[str] = []
    if not waiting:
        return problems
    context = multiprocessing.get_context("spawn")
    count = processes or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(
        min(count, len(waiting)), mp_context=context, initializer=_begin, initargs=(os.getpid(),)
    ) as pool:
        try:
            kept = cache or out / CACHE
            futures = {
                pool.submit(run_job, job.recipe.model_dump_json(), job.seed, data, out, kept, width, void_edges): job
                for job in waiting
            }
            for future in as_completed(futures):
                job, error = futures[future], future.exception()
                problem = None if error is None else f"{job.name}: {error}"
                if isinstance(error, StudyStoppedError):
                    pool.shutdown(wait=False, cancel_futures=True)
                    problems.append(f"{job.name}: {error}")
                    break
                if problem is not None:
                    problems.append(problem)
                done(job, problem)
        except StopSignal:
            for process in multiprocessing.active_children():
                process.terminate()  # its run saves itself; the pool waits for that
            raise
    return problems


def _is_done(job: Job, out: Path, width: int, void_edges: bool) -> bool:
    """Whether there is a result of this run, with these boundaries; an error if it is one of other settings."""
    path = out / RESULTS / f"{job.name}.json"
    if not path.is_file():
        return False
    result = json.loads(path.read_text())
    if result.get("settings", job.settings) != job.settings:
        raise ValueError(f"{path}: this run was done with other settings; give another --out, or remove it")
    return bool((result["width"], result.get("void_edges", False)) == (width, void_edges))


class StudyStoppedError(Exception):
    """A signal asked a run to stop; it is saved, and no other is begun."""


_stopped = False  # a signal has asked this process to end
_busy = Lock()  # held while a job runs


def _begin(parent: int) -> None:
    """One thread for each process, which ends with the one that started it; a signal between two jobs is noted."""
    torch.set_num_threads(1)
    handle_stop_signals(_note_stop)
    Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _note_stop(*_: object) -> None:
    global _stopped
    _stopped = True


def _end_with_parent(parent: int) -> None:
    """A process that trains, or waits for its next job, does not notice that nobody is left to give it one."""
    while os.getppid() == parent:
        sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)  # a run that is going on saves itself first
    with _busy:
        os._exit(1)


def run_job(
    recipe_text: str, seed: int, data: Path | None, out: Path, cache: Path, width: int, void_edges: bool = False
) -> None:
    """Train one run of a study, measure it, and write its result."""
    with _busy:
        try:
            with exit_on_stop_signals():
                _run_job(recipe_text, seed, data, out, cache, width, void_edges)
        except StopSignal:
            _note_stop()
            raise StudyStoppedError("stopped; the same command resumes it") from None


def _run_job(
    recipe_text: str, seed: int, data: Path | None, out: Path, cache: Path, width: int, void_edges: bool
) -> None:
    if _stopped:
        raise StudyStoppedError("not begun; the same command does it")
    job = Job(parse_recipe(recipe_text), seed)
    folder = out / RUNS / job.name
    start = perf_counter()
    kept = cache if job.recipe.training.cache else None
    outcome = train(job.recipe, data, folder, seed=seed, cache=kept, progress=SILENT)
    if not outcome.finished:
        _note_stop()
        raise StudyStoppedError(f"stopped after iteration {outcome.iteration}; the same command resumes it")
    path = out / RESULTS / f"{job.name}.json"
    earlier = (
        json.loads(path.read_text())["seconds"] if path.is_file() and outcome.began == outcome.iteration else None
    )
    seconds = perf_counter() - start if not outcome.began else earlier
    result = {"recipe": job.recipe.name, "variant": job.recipe.model.variant, "seed": seed, "seconds": seconds}
    result["settings"] = job.settings
    write_json(path, result | measure_run(folder, data, width, void_edges))


def measure_run(folder: Path, data: Path | None, width: int, void_edges: bool = False) -> dict[str, Any]:
    """What is told of a finished run: its last scores, the overlaps of its attention, and its gates."""
    file = read_model_file(folder / "last.safetensors")
    evaluations = [event for event in read_log(folder) if event["event"] == "evaluation"]
    scores = scores_of(evaluations[-1]) if evaluations else {}
    curve = [[event["iteration"], next(iter(scores_of(event).values()), None)] for event in evaluations]
    blocks = blocks_of(load_network(file))
    gates = {name: block.gamma.item() for name, block in blocks.items() if block.gamma is not None}
    content: dict[str, Any] = {"iterations": file.iteration, "scores": scores, "curve": curve}
    content |= {"gamma": gates, "overlaps": None, "random": None, "width": width, "void_edges": void_edges}
    if blocks:
        try:
            model = folder / "last.safetensors"
            found = measure_consistency([model], data, width=width, void_edges=void_edges).table()
        except ValueError:
            return content  # a system without labels for each pixel
        random = found.pop(RANDOM)
        means = {name: {key: value and value.mean for key, value in row.items()} for name, row in found.items()}
        content |= {"overlaps": means, "random": {key: value and value.mean for key, value in random.items()}}
    return content


def scores_of(event: dict[str, Any]) -> dict[str, float]:
    """The scores among what an evaluation noted."""
    return {name: value for name, value in event.items() if isinstance(value, float)}


def states(jobs: Sequence[Job], out: Path) -> list[State]:
    """How far each run is, from the results of those that are done and the logs of the others."""
    found = []
    for job in jobs:
        iterations = job.recipe.schedule.iterations + sum(phase.iterations for phase in job.recipe.schedule.then)
        folder, result = out / RUNS / job.name, out / RESULTS / f"{job.name}.json"
        if result.is_file():
            scores = [json.loads(result.read_text())["scores"]]
            iteration = iterations
        else:
            events = list(read_log(folder)) if (folder / "log.jsonl").exists() else []
            scores = [scores_of(event) for event in events if event["event"] == "evaluation"]
            iteration = max((event.get("iteration", 0) for event in events), default=0)
        score = next(iter(scores[-1].values()), None) if scores else None
        found.append(State(job, iteration, iterations, score, folder.is_dir(), result.is_file()))
    return found


def read_results(out: Path) -> list[dict[str, Any]]:
    """The results of all runs that are done, by recipe and seed."""
    results = [json.loads(path.read_text()) for path in sorted((out / RESULTS).glob("*.json"))]
    return sorted(results, key=lambda result: (result["recipe"], result["seed"]))
