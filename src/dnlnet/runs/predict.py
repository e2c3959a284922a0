"""Write predictions for many images or videos. Reading and writing overlap with computing, and jobs resume."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel, load
from dnlnet.artifacts.model_file import ModelFile
from dnlnet.data.downloads import is_url
from dnlnet.data.outputs import Outputs, Targets, writing_problem
from dnlnet.data.problems import BadFileError
from dnlnet.engine import distributed
from dnlnet.errors import TooMuchWorkError, is_out_of_memory
from dnlnet.files import checksum
from dnlnet.progress import BARS, SILENT, Progress
from dnlnet.registry import accepted_options
from dnlnet.runs.job import Job, Stamp, content_of, sizes_of

_AHEAD = 2  # inputs read in advance


@dataclass(frozen=True)
class FileResult:
    """Result for one image or video.

    Args:
        path: Image or video.
        problem: Error message, including the path, if prediction failed.
        skipped: True if the results already existed.
        again: True if the results existed, but they or the input have changed since.
        summary: Summary of the results.
        notes: Problems that did not prevent prediction.
    """

    path: Path
    problem: str | None = None
    skipped: bool = False
    again: bool = False
    summary: str = ""
    notes: Sequence[str] = ()


def predict(
    model: str | Path | ModelFile | TrainedModel,
    inputs: Sequence[Path | str],
    out: Path | str,
    *,
    submission: str | None = None,
    max_pixels: int | None = None,
    threshold: float | None = None,
    force: bool = False,
    on_result: Callable[[FileResult], None] | None = None,
    progress: Progress = BARS,
) -> list[FileResult]:
    """Write the predictions for images or videos into a folder, and return the result for each.

    Skips inputs whose results exist unchanged, so an interrupted job resumes. Raises if the folder holds results of
    another model or precision, unless `force` is set, which predicts everything again. An unreadable input does not
    stop the others. Under torchrun, the processes share the inputs.

    Args:
        model: Loaded model, or anything that `dnlnet.load` accepts.
        inputs: Images (videos for a video model) and folders. Results inside these folders are ignored.
        out: Folder for the results.
        submission: Name of a benchmark server whose format to write (segmentation models only).
        max_pixels: Number of pixels above which a segmentation model works in tiles. Default: 4 million.
        threshold: Minimum confidence of detected objects. Default: 0.5.
        force: Overwrite existing files.
        on_result: Function to call with each result as soon as it is known.
        progress: Progress observer.
    """
    trained = model if isinstance(model, TrainedModel) else load(model)
    writer = trained.runtime_predictor.outputs
    options = {"submission": submission, "max_pixels": max_pixels, "threshold": threshold}
    outputs: Outputs = writer(**accepted_options(trained.file.recipe.task, writer, **options))
    for address in filter(is_url, inputs):
        raise ValueError(f"{address}: give files and folders, or call the model with the address: model({address!r})")
    paths = [Path(given) for given in inputs]
    results = []
    for result in write_predictions(
        outputs, trained.file.path, paths, Path(out), precision=trained.precision, force=force, progress=progress
    ):
        results.append(result)
        if on_result is not None:
            on_result(result)
    return results


def write_predictions(
    outputs: Outputs,
    model: Path,
    inputs: Sequence[Path],
    out: Path,
    *,
    precision: str = "float32",
    force: bool = False,
    progress: Progress = SILENT,
) -> Iterator[FileResult]:
    """Write the predictions for each input and yield its result.

    Args:
        outputs: Writer of predictions.
        model: Model file, which identifies the job.
        inputs: Images or videos, and folders.
        out: Folder for the results.
        precision: Precision of the predictions, which identifies the job if it is not float32.
        force: Overwrite existing files.
        progress: Progress observer.
    """
    found = outputs.find(inputs, out)
    settings = {"model": checksum(model), **outputs.settings()}
    if precision != "float32":  # jobs of earlier versions have no precision
        settings["precision"] = precision
    job = Job(out, settings, distributed.rank())
    if distributed.is_main():
        job.claim(force)
    distributed.barrier()
    before = {} if force else job.done_before()
    distributed.barrier()  # no process adds results while others still read
    mine = [
        _Work(name, path, outputs.targets(out, name)) for name, path in distributed.shard(list(found.paths.items()))
    ]
    problems = found.problems if distributed.is_main() else []
    for text in found.left_out if distributed.is_main() else []:
        progress.say(f"left out: {text}")
    with progress.track("predicting", len(mine) + len(problems)) as bar:
        for problem in problems:
            bar.advance()
            yield FileResult(problem.path, str(problem))
        for result in _results(outputs, job, mine, before, progress):
            bar.advance(note=result.path.name)
            yield result
    distributed.barrier()
    if distributed.is_main():
        job.give_up()
        outputs.finish(out)


def _results(
    outputs: Outputs, job: Job, works: "Sequence[_Work]", before: dict[str, Stamp], progress: Progress
) -> Iterator[FileResult]:
    """Predict the remaining inputs, while other threads read the next inputs and write the last results."""
    wanted = []
    for work in works:
        if work.is_done(before):
            yield FileResult(work.path, skipped=True)
        else:
            wanted.append(work)
    with ThreadPoolExecutor(max_workers=_AHEAD) as readers, ThreadPoolExecutor(max_workers=1) as writer:
        writing: tuple[_Work, str | None, FileResult, Future[None]] | None = None
        for work, reading in _read_ahead(wanted, outputs, readers):
            prediction, problem = _predicted(outputs, work, reading, progress)
            if problem is not None:
                yield FileResult(work.path, problem)
                continue
            if writing is not None:
                yield _written(job, *writing)
            again = str(work.name) in before
            summary, notes = outputs.say(prediction), outputs.notes(prediction)
            result = FileResult(work.path, again=again, summary=summary, notes=notes)
            content, _ = reading.result()
            writing = work, content, result, writer.submit(outputs.write, prediction, work.targets)
        if writing is not None:
            yield _written(job, *writing)


@dataclass(frozen=True)
class _Work:
    """Input, with the name and files of its results."""

    name: Path
    path: Path
    targets: Targets

    def is_done(self, before: dict[str, Stamp]) -> bool:
        """Return whether the results exist, and neither they nor the input have changed."""
        noted = before.get(str(self.name))
        try:
            return noted is not None and noted == [content_of(self.path), sizes_of(self.targets.values())]
        except OSError:
            return False  # a result is missing, or the input, which reading reports


def _read_ahead(
    wanted: Sequence[_Work], outputs: Outputs, readers: ThreadPoolExecutor
) -> Iterator[tuple[_Work, "Future[Any]"]]:
    """Yield each input with a future for its content, and read the next few in advance."""
    waiting = iter(wanted)
    begun = [(work, readers.submit(_read, outputs, work.path)) for work in islice(waiting, _AHEAD)]
    while begun:
        work, reading = begun.pop(0)
        reading.exception()  # wait for it
        begun += [(work, readers.submit(_read, outputs, work.path)) for work in islice(waiting, 1)]
        yield work, reading


def _read(outputs: Outputs, path: Path) -> tuple[str | None, Any]:
    """Return the hash and the pixels of an input."""
    content = None
    with suppress(OSError):  # reading the pixels reports it
        content = content_of(path)
    return content, outputs.read(path)


def _predicted(outputs: Outputs, work: _Work, reading: "Future[Any]", progress: Progress) -> tuple[Any, str | None]:
    """Return the prediction, or the problem that prevents it."""
    try:
        _, pixels = reading.result()
        return outputs.predict(pixels, progress), None
    except BadFileError as error:
        return None, str(error)
    except TooMuchWorkError as error:
        return None, f"{work.path}: {error}"
    except OSError as error:
        return None, f"{work.path}: cannot be read: {error.strerror or error}"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None, f"{work.path}: does not fit into memory; make it smaller"


def _written(job: Job, work: _Work, content: str | None, result: FileResult, writing: "Future[None]") -> FileResult:
    """Wait until the results are written and record them."""
    try:
        writing.result()
        sizes = sizes_of(work.targets.values())
    except OSError as error:
        return FileResult(work.path, f"{work.path}: {writing_problem(error, work.targets.values())}")
    if content is not None:
        job.note(work.name, [content, sizes])
    return result
