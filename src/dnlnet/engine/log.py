"""What a run says while it goes on: one JSON line for each event, and the same numbers for TensorBoard."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from dnlnet.files import atomic_write, json_text, write_errors

LOG_FILE = "log.jsonl"


class RunLog:
    """`log.jsonl` and TensorBoard's event files in the run's folder.

    Args:
        folder: of the run.
        after: the iteration that the run goes on from; lines of later ones, which a killed run has left, are removed.
        evaluated: whether that iteration was evaluated; if not, a line that says so is removed as well.
        written: `digest` of the log when the run was saved, if it is known; a log that is not the same any more is
            told of.
        tensorboard: also write event files.
        quiet: write nothing at all, as all processes but one.
        report: told of lines that are removed, and of others that are not as they were written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, RunLog(Path(folder), tensorboard=False) as log:
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
        tensorboard: bool = True,
        quiet: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._file: TextIO | None = None
        self._board: _Board | None = None
        self._digest = sha256()
        if quiet:
            return
        self._path = folder / LOG_FILE
        lines = list(read_log(folder, report))
        last = after if evaluated else after - 1
        kept = [line for line in lines if line["iteration"] <= (last if line["event"] == "evaluation" else after)]
        if len(kept) < len(lines):
            report(f"{self._path}: {len(lines) - len(kept)} lines of what is now done again removed")
        text = "".join(json_text(line) + "\n" for line in kept)
        self._digest.update(text.encode())
        if written is not None and written != self.digest:
            report(f"{self._path}: is not as it was written: lines have changed or are missing; the rest is kept")
        with atomic_write(self._path) as temporary:
            temporary.write_text(text)
        self._file = self._path.open("a", buffering=1)  # a line is in the file once it is complete
        if tensorboard:
            self._board = _Board(folder / "tensorboard", after)

    @property
    def digest(self) -> str:
        """SHA-256 of all that is in the log."""
        return self._digest.hexdigest()

    def write(self, event: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Add one line; numbers also go to TensorBoard under `event/name`."""
        if self._file is not None:
            line = json_text({"event": event, "iteration": iteration, **values}) + "\n"
            with write_errors(self._path):
                self._file.write(line)
            self._digest.update(line.encode())
        if self._board is not None:
            numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
            self._board.write({f"{event}/{name}": value for name, value in numbers.items()}, iteration)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        for open_file in (self._file, self._board):
            if open_file is not None:
                with suppress(OSError):  # of a full disk, which was reported when the line was written
                    open_file.close()


def read_log(folder: Path, report: Callable[[str], None] = lambda _: None) -> Iterator[dict[str, Any]]:
    """The events of a run; damaged lines are left out and `report` is told of them, but for a last one cut off."""
    path = folder / LOG_FILE
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")  # what follows the last end of a line was cut off, or is nothing
    damaged = []
    for number, line in enumerate(lines, start=1):
        event = _event(line)
        if event is not None:
            yield event
        elif number < len(lines):
            damaged.append(str(number))
    if damaged:
        several = len(damaged) > 1
        numbers = ", ".join(damaged[:8]) + (", ..." if len(damaged) > 8 else "")
        report(f"{path}: line{'s' * several} {numbers} {'are' if several else 'is'} damaged and left out")


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or None if the line is not whole."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # also of bytes that are no text
        return None
    whole = isinstance(event, dict) and isinstance(event.get("event"), str) and type(event.get("iteration")) is int
    return event if whole else None


class _Board:
    """An event file for TensorBoard.

    `SummaryWriter` would write from a thread of its own, in which a full disk ends in a traceback and nothing else.
    """

    def __init__(self, folder: Path, after: int) -> None:
        events: Any = import_module("tensorboard.compat.proto.event_pb2")
        self._event, self._summary = events.Event, import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        with write_errors(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
        self._records = import_module("tensorboard.summary.writer.record_writer").RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        self._add(
            step=after + 1, session_log=events.SessionLog(status=events.SessionLog.START)
        )  # earlier files end before it

    def write(self, values: Mapping[str, float], iteration: int) -> None:
        """Add numbers by name."""
        tags = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step=iteration, summary=self._summary(value=tags))

    def close(self) -> None:
        self._file.close()

    def _add(self, **content: Any) -> None:
        with write_errors(self._path):
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
            self._file.flush()
