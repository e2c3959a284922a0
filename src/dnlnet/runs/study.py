"""Studies: train each recipe with each seed and fold, and collect the results."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock, Thread
from time import perf_counter
from typing import Any

import torch

from dnlnet.artifacts.model_file import read_model_file, shareable
from dnlnet.artifacts.weights import load_network
from dnlnet.data.catalog import find_data_set
from dnlnet.engine.log import read_log
from dnlnet.files import make_folder, write_json
from dnlnet.lens.measure import BOUNDARY_WIDTH
from dnlnet.lens.measure.consistency import RANDOM
from dnlnet.lens.trace.capture import blocks_of
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import data_sets, parse_recipe
from dnlnet.runs.choose import require_data_folder
from dnlnet.runs.consistency import consistency
from dnlnet.runs.run_folder import CACHE, RUN_FILE, read_run
from dnlnet.runs.train import train
from dnlnet.signals import StopSignal, exit_on_stop_signals, handle_stop_signals

RESULTS = "results"  # folder with one file per finished run
RUNS = "runs"
PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    recipe: Recipe
    seed: int
    fold: int | None = None  # counted from 1
    folds: int | None = None

    @property
    def name(self) -> str:
        """Name of its folder and result."""
        return f"{self.recipe.name}-{self.seed}" + (f"-{self.fold}of{self.folds}" if self.folds else "")

    @property
    def title(self) -> str:
        """Recipe, seed and fold, for messages."""
        return f"{self.recipe.name}, seed {self.seed}" + (f", fold {self.fold} of {self.folds}" if self.folds else "")

    @property
    def settings(self) -> str:
        """Hash of its settings. New settings with default values do not change it."""
        text = shareable(self.recipe).model_dump_json(exclude={"paper", "measured"}, exclude_defaults=True)
        return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class JobState:
    """Progress of one run."""

    job: Job
    iteration: int
    iterations: int
    score: float | None
    begun: bool
    done: bool


def plan(
    recipes: Sequence[Recipe],
    seeds: int,
    settings: Sequence[str] = (),
    *,
    first_seed: int = 0,
    folds: int | None = None,
) -> list[Job]:
    """Return the runs of a study, seed by seed, so that a stopped study has complete seeds.

    Args:
        recipes: Recipes to train.
        seeds: Number of seeds.
        settings: Overrides for all recipes.
        first_seed: First seed.
        folds: Number of folds for cross-validation. Default: train and test on the splits of the recipes.

    >>> from dnlnet.registry import match_recipes
    >>> [job.name for job in plan(match_recipes("scenes-tiny-dnl_*"), 2)]
    ['scenes-tiny-dnl_star-0', 'scenes-tiny-dnl_dagger-0', 'scenes-tiny-dnl_star-1', 'scenes-tiny-dnl_dagger-1']
    """
    chosen = {recipe.name: override(recipe, settings) for recipe in recipes}
    if len({recipe.task for recipe in chosen.values()}) > 1:
        raise ValueError("a study compares recipes of one task")
    every = range(first_seed, first_seed + seeds)
    if folds is None:
        return [Job(recipe, seed) for seed in every for recipe in chosen.values()]
    divided = {name: _on_folds(recipe, folds) for name, recipe in chosen.items()}
    return [
        Job(recipe, seed, fold, folds)
        for seed in every
        for parts in divided.values()
        for fold, recipe in enumerate(parts, start=1)
    ]


def _on_folds(recipe: Recipe, folds: int) -> list[Recipe]:
    """Return the recipe with the splits of each fold."""
    split = find_data_set(recipe.data_sets, recipe.data.name).fold_splits
    if split is None:
        able = ", ".join(name for name, (_, row) in data_sets().items() if row.fold_splits is not None)
        raise ValueError(
            f"--folds: {recipe.data.name} does not say which files belong together; data sets with folds: {able}"
        )
    if recipe.schedule.then:
        raise ValueError(f"--folds: {recipe.name} trains in phases with splits of their own; expected one phase")
    return [
        override(recipe, [f"data.train={train}", f"data.test={test}"])
        for train, test in (split(fold, folds) for fold in range(1, folds + 1))
    ]


@dataclass(frozen=True)
class Study:
    """Folder with the runs of a study and their results.

    Args:
        out: Folder of the study.
        data: Folder of the data set.
        cache: Folder for features of frozen backbones. Default: inside `out`.
        width: Width of boundaries in pixels, for the overlaps of attention; see `boundary_width`.
        void_edges: Count contours between a class and unlabelled pixels as boundaries.
    """

    out: Path
    data: Path | None = None
    cache: Path | None = None
    width: int | None = None
    void_edges: bool = False

    def run(self, jobs: Sequence[Job], *, processes: int | None = None, progress: Progress = SILENT) -> list[str]:
        """Run the jobs that have no result yet, resuming stopped ones. Return the problems.

        Args:
            jobs: Jobs from `plan`.
            processes: Number of simultaneous runs. Default: one per core.
            progress: Progress observer.
        """
        if self.data is not None:
            require_data_folder(self.data)
        make_folder(self.out)
        width = self.boundary_width()
        waiting = [job for job in jobs if not self._is_done(job, width)]
        problems: list[str] = []
        if not waiting:
            return problems
        count = min(processes or _cores(), len(waiting))
        pool = ProcessPoolExecutor(count, mp_context=PROCESSES, initializer=_begin)
        with pool, progress.track("runs", len(jobs), start=len(jobs) - len(waiting), unit="run") as runs:
            try:
                futures = {pool.submit(run_job, job, replace(self, width=width)): job for job in waiting}
                for future in as_completed(futures):
                    job, error = futures[future], future.exception()
                    if error is not None:
                        problems.append(f"{job.name}: {error}")
                    if isinstance(error, StudyStoppedError):
                        pool.shutdown(wait=False, cancel_futures=True)
                        break
                    score = self.state(job).score
                    outcome = "failed" if error else "-" if score is None else f"{score:.3f}"
                    runs.advance(note=f"{job.title}: {outcome}")
            except StopSignal:
                for process in multiprocessing.active_children():
                    process.terminate()  # the run saves a checkpoint; the pool waits for it
                raise
        return problems

    def state(self, job: Job) -> JobState:
        """Return the progress of a run, read from its result or its log."""
        iterations = job.recipe.schedule.total
        folder, result = self.run_folder(job), self.result_file(job)
        done = result.is_file()
        if done:
            scores, iteration = [json.loads(result.read_text())["scores"]], iterations
        else:
            events = list(read_log(folder)) if (folder / "log.jsonl").exists() else []
            scores = [_scores_of(event) for event in events if event["event"] == "evaluation"]
            iteration = max((event.get("iteration", 0) for event in events), default=0)
        score = next(iter(scores[-1].values()), None) if scores else None
        return JobState(job, iteration, iterations, score, folder.is_dir(), done)

    def run_folder(self, job: Job) -> Path:
        """Return the folder of a run."""
        return self.out / RUNS / job.name

    def result_file(self, job: Job) -> Path:
        """Return the result file of a run."""
        return self.out / RESULTS / f"{job.name}.json"

    def boundary_width(self) -> int:
        """Return the width of boundaries. Default: that of the stored results, or `BOUNDARY_WIDTH`."""
        if self.width is not None:
            return self.width
        stored = sorted({result["width"] for result in read_results(self.out)})
        if len(stored) > 1:
            widths = " and ".join(map(str, stored))
            raise ValueError(f"{self.out}: its results have boundaries of {widths} pixels; choose one with --width")
        return stored[0] if stored else BOUNDARY_WIDTH

    def _is_done(self, job: Job, width: int) -> bool:
        """Return whether the run has a result for these boundaries. Raises if its settings were different."""
        path, run = self.result_file(job), self.run_folder(job) / RUN_FILE
        if not path.is_file():
            return False
        result = json.loads(path.read_text())
        same = result.get("settings", job.settings) == job.settings
        if not same and run.is_file():  # earlier versions hashed settings differently
            same = parse_recipe(json.dumps(read_run(run)["recipe"])).stored() == shareable(job.recipe).stored()
        if not same:
            raise ValueError(f"{path}: this run has other settings; choose another --out, or remove the file")
        return bool((result["width"], result.get("void_edges", False)) == (width, self.void_edges))


def _cores() -> int:
    """Return the number of cores that this process may use; only Linux restricts a process to some of them."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


class StudyStoppedError(Exception):
    """A signal stopped the study. The running job is saved and no other starts."""


_stopped = False  # set when a signal asks this process to end
_busy = Lock()  # held while a job runs


def _begin() -> None:
    """Set up a worker: one thread, signals noted between jobs, and exit when the parent dies."""
    torch.set_num_threads(1)
    handle_stop_signals(_note_stop)
    Thread(target=_end_with_parent, daemon=True).start()


def _note_stop(*_: object) -> None:
    global _stopped
    _stopped = True


def _end_with_parent() -> None:
    """End this process when its parent dies, which training and waiting would not notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # a running job saves a checkpoint first
    with _busy:
        os._exit(1)


def run_job(job: Job, study: Study) -> None:
    """Train and measure one run and write its result."""
    with _busy:
        try:
            with exit_on_stop_signals():
                _run_job(job, study)
        except StopSignal:
            _note_stop()
            raise StudyStoppedError("stopped; the same command resumes it") from None


def _run_job(job: Job, study: Study) -> None:
    if _stopped:
        raise StudyStoppedError("not started; the same command starts it")
    folder, path = study.run_folder(job), study.result_file(job)
    new, start = not (folder / "log.jsonl").exists(), perf_counter()
    cache = (study.cache or study.out / CACHE) if job.recipe.training.cache else None
    outcome = train(job.recipe, study.data, folder, seed=job.seed, cache=cache)
    if not outcome.finished:
        _note_stop()
        raise StudyStoppedError(f"stopped after iteration {outcome.iteration}; the same command resumes it")
    # The duration of a resumed run is unknown; that of a finished run is in its result.
    earlier = json.loads(path.read_text())["seconds"] if path.is_file() else None
    seconds = perf_counter() - start if new else earlier
    result = {"recipe": job.recipe.name, "variant": job.recipe.model.variant, "seed": job.seed, "seconds": seconds}
    if job.folds is not None:
        result |= {"fold": job.fold, "folds": job.folds}
    measured = measure_run(folder, study.data, study.boundary_width(), study.void_edges)
    write_json(path, {**result, "settings": job.settings, **measured})


def measure_run(folder: Path, data: Path | None, width: int, void_edges: bool = False) -> dict[str, Any]:
    """Return the scores, attention overlaps and gates of a finished run."""
    path = folder / "last.safetensors"
    file = read_model_file(path)
    evaluations = [event for event in read_log(folder) if event["event"] == "evaluation"]
    scores = _scores_of(evaluations[-1]) if evaluations else {}
    curve = [[event["iteration"], next(iter(_scores_of(event).values()), None)] for event in evaluations]
    blocks = blocks_of(load_network(file))
    gates = {name: block.gamma.item() for name, block in blocks.items() if block.gamma is not None}
    samples = evaluations[-1].get("samples") if evaluations else None
    content: dict[str, Any] = {"iterations": file.iteration, "scores": scores, "samples": samples, "curve": curve}
    content |= {"gamma": gates, "overlaps": None, "random": None, "width": width, "void_edges": void_edges}
    if blocks:
        try:
            found = consistency([path], data, width=width, void_edges=void_edges, progress=SILENT).table()
        except ValueError:
            return content  # the task has no class per pixel
        means = {name: {key: value and value.mean for key, value in row.items()} for name, row in found.items()}
        content |= {"random": means.pop(RANDOM), "overlaps": means}
    return content


def _scores_of(event: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in event.items() if isinstance(value, float)}


def read_results(study: Path) -> list[dict[str, Any]]:
    """Return the results of all finished runs, sorted by recipe, seed and fold, from a study folder or study.json."""
    if study.is_file():
        results = json.loads(study.read_text())["runs"]
    else:
        results = [json.loads(path.read_text()) for path in (study / RESULTS).glob("*.json")]
    return sorted(results, key=lambda result: (result["recipe"], result["seed"], result.get("fold", 0)))
