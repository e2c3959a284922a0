"""Predict many pictures or videos into a folder: read and written beside the computing, each done once."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dnlnet.data.labelled import BadFileError
from dnlnet.data.video import VideoError
from dnlnet.engine import distributed
from dnlnet.files import checksum, written_whole
from dnlnet.recipes.outputs import outputs_of
from dnlnet.tasks.actions import VideoModel
from dnlnet.tasks.detections import SCORE_THRESHOLD, DetectionModel
from dnlnet.tasks.prediction import MAX_PIXELS, SegmentationModel

JOB_FILE = "predict.json"
_AHEAD = 2  # pictures read before they are needed


@dataclass(frozen=True)
class Done:
    """What became of one picture or video."""

    path: Path
    problem: str | None = None
    skipped: bool = False
    said: str = ""


def predict_pictures(
    model: SegmentationModel | DetectionModel | VideoModel,
    model_path: Path,
    inputs: Sequence[Path],
    out: Path,
    *,
    submission: str | None = None,
    max_pixels: int = MAX_PIXELS,
    threshold: float = SCORE_THRESHOLD,
    force: bool = False,
    start: Callable[[int], None] = lambda _: None,
) -> Iterator[Done]:
    """Write what the model finds in each picture, and give what became of it, in order.

    Pictures whose files are all there are skipped, so that an interrupted job goes on; a folder of another model is
    refused unless `force`, which does everything again. In several processes each takes its share.

    Args:
        model: what predicts.
        model_path: its file, to know the job by.
        inputs: pictures, or videos for a video model, and folders of them.
        out: gets the folders that the model's outputs have: see `dnlnet.recipes.outputs`.
        submission: write the files of a benchmark's server instead.
        max_pixels: larger pictures are done in tiles.
        threshold: objects that a detector is less sure of are left out.
        force: overwrite.
        start: told how many pictures this process has.
    """
    outputs = outputs_of(model, submission, max_pixels, threshold)
    pictures = outputs.find(inputs)
    targets = {path: outputs.targets(out, name) for name, path in pictures.items()}
    if distributed.is_main():
        _claim(out, {"model": checksum(model_path), **outputs.settings()}, force)
    distributed.wait_for_all()
    mine = distributed.share_of(list(pictures.values()))
    start(len(mine))
    wanted = [path for path in mine if force or not all(target.exists() for target in targets[path].values())]
    skipped = set(mine) - set(wanted)
    with ThreadPoolExecutor(max_workers=_AHEAD) as readers, ThreadPoolExecutor(max_workers=1) as writer:
        yield from (Done(path, skipped=True) for path in mine if path in skipped)
        writing: tuple[Done, Future[None]] | None = None
        for path, pixels in _read_ahead(wanted, outputs.read, readers):
            try:
                prediction = outputs.predict(pixels.result())
            except (BadFileError, VideoError) as error:
                yield Done(path, str(error))
                continue
            if writing is not None:
                yield _written(*writing)
            done = Done(path, said=outputs.say(prediction))
            writing = done, writer.submit(outputs.write, prediction, targets[path])
        if writing is not None:
            yield _written(*writing)


def _read_ahead(
    paths: Sequence[Path], read: Callable[[Path], Any], readers: ThreadPoolExecutor
) -> Iterator[tuple[Path, "Future[Any]"]]:
    """Each picture with its pixels to come, a few of the next ones being read meanwhile."""
    waiting = iter(paths)
    reading = [(path, readers.submit(read, path)) for path in islice(waiting, _AHEAD)]
    while reading:
        path, pixels = reading.pop(0)
        pixels.exception()  # wait for it
        reading += [(path, readers.submit(read, path)) for path in islice(waiting, 1)]
        yield path, pixels


def _written(done: Done, writing: "Future[None]") -> Done:
    writing.result()
    return done


def _claim(out: Path, job: dict[str, object], force: bool) -> None:
    """Note which job the folder is of, or see that it is this one."""
    path = out / JOB_FILE
    if out.exists() and not force:
        before = json.loads(path.read_text()) if path.exists() else None
        if before is None and any(out.iterdir()):
            raise ValueError(
                f"{out} exists and holds other files; choose another folder, or --force to write into it"
            )
        if before is not None and before != job:
            raise ValueError(
                f"{out} holds predictions of another model or other settings; choose another, or --force"
            )
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(job))
