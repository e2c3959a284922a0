"""Record of a folder of predictions: the model, and the state of each input when it was predicted."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from time import time_ns
from typing import Any

from dnlnet.data.inputs import JOB_FILE
from dnlnet.files import atomic_write, content_checksum, explain_write_errors, files_in

Stamp = list[Any]  # hash of an input and sizes of its results, to detect changes of either


class Job:
    """Predictions of one model, with one set of settings, into a folder.

    Each process keeps its own file with a line per finished input. Incomplete lines of stopped processes are ignored.

    Args:
        out: Folder for the results.
        settings: The model and all other settings that the results depend on.
        rank: Rank of this process.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], rank: int = 0) -> None:
        self._out, self._settings = out, dict(settings)
        self._identity = sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]
        self._notes = out / f"{Path(JOB_FILE).stem}.{rank}.jsonl"
        self._made = not out.exists()

    def claim(self, force: bool = False) -> None:
        """Mark the folder as this job's. Raises if it holds something else, unless `force`."""
        path = self._out / JOB_FILE
        if self._out.exists() and not self._out.is_dir():
            raise ValueError(f"{self._out} is a file; choose a folder for the results")
        if self._out.exists() and not force:
            if not path.exists() and any(self._out.iterdir()):
                raise ValueError(
                    f"{self._out} exists and holds other files; choose another folder, or --force to write into it"
                )
            if path.exists() and _read(path) != self._settings:
                raise ValueError(
                    f"{self._out} holds predictions of another model or other settings; choose another, or --force"
                )
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(self._settings))

    def give_up(self) -> None:
        """Remove the mark if there are no results, and the folder if this job created it."""
        if [path.name for path in self._out.iterdir()] == [JOB_FILE]:
            (self._out / JOB_FILE).unlink()
            if self._made:
                self._out.rmdir()

    def done_before(self) -> dict[str, Stamp]:
        """Return the stamp of each input that this job has finished, by the name of its results."""
        newest: dict[str, tuple[int, str, Stamp]] = {}
        for notes in self._out.glob(f"{Path(JOB_FILE).stem}.*.jsonl"):
            for line in notes.read_text(errors="replace").splitlines():
                try:
                    name, time, identity, stamp = json.loads(line)
                    newest[name] = max((time, identity, stamp), newest.get(name, (0, "", [])))
                except (ValueError, TypeError, RecursionError):
                    continue  # truncated or damaged
        # Leave out results that another job has overwritten.
        return {name: stamp for name, (_, identity, stamp) in newest.items() if identity == self._identity}

    def note(self, name: Path, stamp: Stamp) -> None:
        """Record that an input has its results."""
        with explain_write_errors(self._notes), self._notes.open("a") as file:
            # Start a new line first: the last one may be incomplete.
            file.write("\n" + json.dumps([str(name), time_ns(), self._identity, stamp]))


def content_of(path: Path) -> str:
    """Return a short checksum of the content of a file or folder."""
    return content_checksum(path)[:16]


def sizes_of(paths: Iterable[Path]) -> list[list[int]]:
    """Return the size of each file, or the sizes of a folder's files."""
    return [[file.stat().st_size for file in (files_in(path) if path.is_dir() else [path])] for path in paths]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is damaged; choose another folder for the results, or --force") from None
