"""Predict many pictures or videos into a folder: read and written beside the computing, each done once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel, load
from dnlnet.data.downloads import is_url
from dnlnet.data.outputs import Outputs, Targets, writing_problem
from dnlnet.data.problems import BadFileError
from dnlnet.engine import distributed
from dnlnet.errors import TooMuchWorkError, is_out_of_memory
from dnlnet.files import checksum
from dnlnet.registry import require_options
from dnlnet.runs.job import Job, Stamp, content_of, sizes_of

_AHEAD = 2  # pictures read before they are needed


@dataclass(frozen=True)
class Done:
    """What became of one picture or video.

    Args:
        path: of it.
        problem: why it has no results, with its path.
        skipped: it had its results already.
        again: it had results, but they or the picture have changed since.
        said: what the results are, in words.
        notes: what is wrong with it although it has results.
    """

    path: Path
    problem: str | None = None
    skipped: bool = False
    again: bool = False
    said: str = ""
    notes: Sequence[str] = ()


def predict(
    model: str | Path | TrainedModel,
    inputs: Sequence[Path | str],
    out: Path | str,
    *,
    options: Mapping[str, Any] | None = None,
    force: bool = False,
    start: Callable[[int], None] = lambda _: None,
    left_out: Callable[[str], None] = lambda _: None,
    progress: Callable[[Path, int, int], None] = lambda path, done, total: None,
    done: Callable[[Done], None] = lambda _: None,
) -> list[Done]:
    """Write what a model finds in each picture or video into a folder, and return what became of each.

    What has all its results already is skipped, if neither has changed, so that an interrupted job goes on; a folder
    of another model is refused unless `force`, which does everything again. A picture that cannot be used does not
    stop the others. In several processes each takes its share.

    Args:
        model: what predicts: a trained model, with the backend that it was loaded with, or what `dnlnet.load` takes.
        inputs: pictures, or videos for a video model, and folders of them; results in these are left out.
        out: gets the folders that the model's task writes.
        options: of the results: `submission` and `max_pixels` of a segmentation model, `threshold` of a detector.
        force: overwrite.
        start: called with the number of pictures of this process.
        left_out: called with what in the folders is passed over, and why.
        progress: called with the picture at hand, how much of it is done, and of how much.
        done: called with what became of each picture, in order.
    """
    trained = model if isinstance(model, TrainedModel) else load(model)
    require_options(trained.file.recipe.task, trained.runtime_predictor.outputs, options or {})
    outputs = trained.runtime_predictor.outputs(**(options or {}))
    for address in filter(is_url, inputs):
        raise ValueError(f"{address}: give files and folders, or call the model with the address: model({address!r})")
    paths = [Path(given) for given in inputs]
    results = []
    for result in write_predictions(
        outputs,
        trained.file.path,
        paths,
        Path(out),
        force=force,
        start=start,
        left_out=left_out,
        progress=progress,
    ):
        done(result)
        results.append(result)
    return results


def write_predictions(
    outputs: Outputs,
    model: Path,
    inputs: Sequence[Path],
    out: Path,
    *,
    force: bool = False,
    start: Callable[[int], None] = lambda _: None,
    left_out: Callable[[str], None] = lambda _: None,
    progress: Callable[[Path, int, int], None] = lambda path, done, total: None,
) -> Iterator[Done]:
    """Write the outputs of each input, and give what became of it; `model` is the file to know the job by."""
    found = outputs.find(inputs, out)
    job = Job(out, {"model": checksum(model), **outputs.settings()}, distributed.rank())
    if distributed.is_main():
        job.claim(force)
    distributed.barrier()
    before = {} if force else job.done_before()
    distributed.barrier()  # nobody notes anything while others still read
    mine = [
        _Work(name, path, outputs.targets(out, name)) for name, path in distributed.shard(list(found.paths.items()))
    ]
    problems = found.problems if distributed.is_main() else []
    start(len(mine) + len(problems))
    for text in found.left_out if distributed.is_main() else []:
        left_out(text)
    yield from (Done(problem.path, str(problem)) for problem in problems)
    wanted = []
    for work in mine:
        if work.is_done(before):
            yield Done(work.path, skipped=True)
        else:
            wanted.append(work)
    with ThreadPoolExecutor(max_workers=_AHEAD) as readers, ThreadPoolExecutor(max_workers=1) as writer:
        writing: tuple[_Work, str | None, Done, Future[None]] | None = None
        for work, reading in _read_ahead(wanted, outputs, readers):
            prediction, problem = _predicted(outputs, work, reading, progress)
            if problem is not None:
                yield Done(work.path, problem)
                continue
            if writing is not None:
                yield _written(job, *writing)
            again = str(work.name) in before
            done = Done(work.path, again=again, said=outputs.say(prediction), notes=outputs.notes(prediction))
            content, _ = reading.result()
            writing = work, content, done, writer.submit(outputs.write, prediction, work.targets)
        if writing is not None:
            yield _written(job, *writing)
    distributed.barrier()
    if distributed.is_main():
        job.give_up()
        outputs.finish(out)


@dataclass(frozen=True)
class _Work:
    """A picture, the name of its results, and their files."""

    name: Path
    path: Path
    targets: Targets

    def is_done(self, before: dict[str, Stamp]) -> bool:
        """Whether its results are there as they were written, and are of the picture as it is now."""
        noted = before.get(str(self.name))
        try:
            return noted is not None and noted == [content_of(self.path), sizes_of(self.targets.values())]
        except OSError:
            return False  # a result is missing; or the picture, and reading it says why


def _read_ahead(
    wanted: Sequence[_Work], outputs: Outputs, readers: ThreadPoolExecutor
) -> Iterator[tuple[_Work, "Future[Any]"]]:
    """Each picture with its content to come, a few of the next ones being read meanwhile."""
    waiting = iter(wanted)
    begun = [(work, readers.submit(_read, outputs, work.path)) for work in islice(waiting, _AHEAD)]
    while begun:
        work, reading = begun.pop(0)
        reading.exception()  # wait for it
        begun += [(work, readers.submit(_read, outputs, work.path)) for work in islice(waiting, 1)]
        yield work, reading


def _read(outputs: Outputs, path: Path) -> tuple[str | None, Any]:
    """Return what a picture is known by again, and its pixels."""
    content = None
    with suppress(OSError):  # reading the pixels says why
        content = content_of(path)
    return content, outputs.read(path)


def _predicted(
    outputs: Outputs, work: _Work, reading: "Future[Any]", progress: Callable[[Path, int, int], None]
) -> tuple[Any, str | None]:
    """What the model finds, or why it cannot look."""
    try:
        _, pixels = reading.result()
        return outputs.predict(pixels, lambda done, total: progress(work.path, done, total)), None
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


def _written(job: Job, work: _Work, content: str | None, done: Done, writing: "Future[None]") -> Done:
    """Wait until its results are written, and note it."""
    try:
        writing.result()
        sizes = sizes_of(work.targets.values())
    except OSError as error:
        return Done(work.path, f"{work.path}: {writing_problem(error, work.targets.values())}")
    if content is not None:
        job.note(work.name, [content, sizes])
    return done
