"""Log of a run: one JSON line per event, and the same numbers for TensorBoard if it is installed."""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from dnlnet.errors import load_extra
from dnlnet.files import atomic_write, explain_write_errors, json_text, make_folder
from dnlnet.progress import SILENT, Progress

LOG_FILE = "log.jsonl"


class RunLog:
    """`log.jsonl` and TensorBoard's event files in the folder of a run.

    Args:
        folder: Folder of the run.
        after: Iteration to resume from. Lines of later iterations, left by a killed run, are removed.
        evaluated: False if the scores of that iteration must be computed again. Their line is then removed too.
        written: `digest` of the log when the run was saved, if known. A later change is reported.
        quiet: Write nothing. Set in all processes except the main one.
        progress: Observer of removed, damaged or changed lines.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, RunLog(Path(folder)) as log:
    ...     log.write("train", 1, {"loss": 0.5})
    ...     list(read_log(Path(folder)))
    [{'event': 'train', 'iteration': 1, 'loss': 0.5}]
    """

    def __init__(
        self,
        folder: Path,
        after: int = 0,
        *,
        evaluated: bool = True,
        written: str | None = None,
        quiet: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        self._file: TextIO | None = None
        self._event_file: _EventFile | None = None
        self._digest = sha256()
        if quiet:
            return
        self._path = folder / LOG_FILE
        lines = list(read_log(folder, progress))
        last = after if evaluated else after - 1
        kept = [line for line in lines if line["iteration"] <= (last if line["event"] == "evaluation" else after)]
        if len(kept) < len(lines):
            progress.say(f"{self._path}: removed {len(lines) - len(kept)} lines after the point of resuming")
        text = "".join(json_text(line) + "\n" for line in kept)
        self._digest.update(text.encode())
        if written is not None and written != self.digest:
            progress.say(f"{self._path}: lines have changed or are missing since the run was saved; the rest is kept")
        with atomic_write(self._path) as temporary:
            temporary.write_text(text)
        self._file = self._path.open("a", buffering=1)  # line-buffered
        try:
            self._event_file = _EventFile(folder / "tensorboard", after)
        except ModuleNotFoundError as error:
            progress.say(f"no curves for TensorBoard: {error}")

    @property
    def digest(self) -> str:
        """SHA-256 of the log."""
        return self._digest.hexdigest()

    def write(self, event: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Write one line. Numbers also go to TensorBoard as `event/name`."""
        if self._file is not None:
            line = json_text({"event": event, "iteration": iteration, **values}) + "\n"
            with explain_write_errors(self._path):
                self._file.write(line)
            self._digest.update(line.encode())
        if self._event_file is not None:
            numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
            self._event_file.write({f"{event}/{name}": value for name, value in numbers.items()}, iteration)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        for open_file in (self._file, self._event_file):
            if open_file is not None:
                with suppress(OSError):  # a full disk was reported when the line was written
                    open_file.close()


def read_log(folder: Path, progress: Progress = SILENT) -> Iterator[dict[str, Any]]:
    """Yield the events of a run. Reports and skips damaged lines; skips an unfinished last line silently."""
    path = folder / LOG_FILE
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")  # the last item is an unfinished line, or empty
    damaged = []
    for number, line in enumerate(lines, start=1):
        event = _parse_event(line)
        if event is not None:
            yield event
        elif number < len(lines):
            damaged.append(str(number))
    if damaged:
        several = len(damaged) > 1
        numbers = ", ".join(damaged[:8]) + (", ..." if len(damaged) > 8 else "")
        progress.say(f"{path}: line{'s' * several} {numbers} {'are' if several else 'is'} damaged and skipped")


def _parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line, or None if the line is damaged."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also for bytes that are not text
        return None
    whole = isinstance(event, dict) and isinstance(event.get("event"), str) and type(event.get("iteration")) is int
    return event if whole else None


class _EventFile:
    """Event file for TensorBoard.

    Replaces `SummaryWriter`, whose thread only prints a traceback if the disk is full.
    """

    def __init__(self, folder: Path, after: int) -> None:
        events: Any = load_extra("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._event, self._summary = events.Event, import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        with explain_write_errors(self._path):
            make_folder(folder)
            self._file = self._path.open("wb")
        self._records = import_module("tensorboard.summary.writer.record_writer").RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        # TensorBoard ignores later steps in earlier files.
        self._add(step=after + 1, session_log=events.SessionLog(status=events.SessionLog.START))

    def write(self, values: Mapping[str, float], iteration: int) -> None:
        """Add numbers by name."""
        tags = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step=iteration, summary=self._summary(value=tags))

    def close(self) -> None:
        self._file.close()

    def _add(self, **content: Any) -> None:
        with explain_write_errors(self._path):
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
            self._file.flush()
