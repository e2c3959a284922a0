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
from dnlnet.data.labelled import BadFileError
from dnlnet.data.outputs import Outputs, Targets, writing_problem
from dnlnet.engine import distributed
from dnlnet.errors import TooMuchWorkError, is_out_of_memory
from dnlnet.files import checksum
from dnlnet.runs.job import Job, Stamp, stamp_of
from dnlnet.systems import require_options

_AHEAD = 2  # pictures read before they are needed


@dataclass(frozen=True)
class Done:
    """What became of one picture or video.

    Args:
        path: of it.
        problem: why it has no results, with its path.
        skipped: it had its results already.
        again: it had results, but the picture has changed since.
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

    What has all its results already is skipped, if it has not changed, so that an interrupted job goes on; a folder
    of another model is refused unless `force`, which does everything again. A picture that cannot be used does not
    stop the others. In several processes each takes its share.

    Args:
        model: what predicts: a trained model, with the backend that it was loaded with, or what `dnlnet.load` takes.
        inputs: pictures, or videos for a video model, and folders of them; results in these are left out.
        out: gets the folders that the model's system writes.
        options: of the results: `submission` and `max_pixels` of a segmentation model, `threshold` of a detector.
        force: overwrite.
        start: called with the number of pictures of this process.
        left_out: called with what in the folders is passed over, and why.
        progress: called with the picture at hand, how much of it is done, and of how much.
        done: called with what became of each picture, in order.
    """
    trained = model if isinstance(model, TrainedModel) else load(model)
    require_options(trained.system.name, trained.system.output_options, options or {})
    outputs = trained.system.outputs(trained.predicting, **(options or {}))
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
    mine = [_Work.of(name, path, outputs, out) for name, path in distributed.shard(list(found.paths.items()))]
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
        writing: tuple[_Work, Done, Future[None]] | None = None
        for work, pixels in _read_ahead(wanted, outputs, readers):
            prediction, problem = _predicted(outputs, work, pixels, progress)
            if problem is not None:
                yield Done(work.path, problem)
                continue
            if writing is not None:
                yield _written(job, *writing)
            again = before.get(str(work.name), work.stamp) != work.stamp
            done = Done(work.path, again=again, said=outputs.say(prediction), notes=outputs.notes(prediction))
            writing = work, done, writer.submit(outputs.write, prediction, work.targets)
        if writing is not None:
            yield _written(job, *writing)
    distributed.barrier()
    if distributed.is_main():
        job.give_up()
        outputs.finish(out)


@dataclass(frozen=True)
class _Work:
    """A picture, the name of its results, their files, and what the picture is known by again."""

    name: Path
    path: Path
    targets: Targets
    stamp: Stamp | None

    @classmethod
    def of(cls, name: Path, path: Path, outputs: Outputs, out: Path) -> "_Work":
        stamp = None
        with suppress(OSError):  # reading it says why
            stamp = stamp_of(path)
        return cls(name, path, outputs.targets(out, name), stamp)

    def is_done(self, before: dict[str, Stamp]) -> bool:
        """Whether its results are there, and are of the picture as it is now."""
        return before.get(str(self.name), []) == self.stamp and all(map(_exists, self.targets.values()))


def _read_ahead(
    wanted: Sequence[_Work], outputs: Outputs, readers: ThreadPoolExecutor
) -> Iterator[tuple[_Work, "Future[Any]"]]:
    """Each picture with its pixels to come, a few of the next ones being read meanwhile."""
    waiting = iter(wanted)
    reading = [(work, readers.submit(outputs.read, work.path)) for work in islice(waiting, _AHEAD)]
    while reading:
        work, pixels = reading.pop(0)
        pixels.exception()  # wait for it
        reading += [(work, readers.submit(outputs.read, work.path)) for work in islice(waiting, 1)]
        yield work, pixels


def _predicted(
    outputs: Outputs, work: _Work, pixels: "Future[Any]", progress: Callable[[Path, int, int], None]
) -> tuple[Any, str | None]:
    """What the model finds, or why it cannot look."""
    try:
        return outputs.predict(pixels.result(), lambda done, total: progress(work.path, done, total)), None
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


def _written(job: Job, work: _Work, done: Done, writing: "Future[None]") -> Done:
    """Wait until its results are written, and note it."""
    try:
        writing.result()
    except OSError as error:
        return Done(work.path, f"{work.path}: {writing_problem(error, work.targets.values())}")
    if work.stamp is not None:
        job.note(work.name, work.stamp)
    return done


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a name that is too long
