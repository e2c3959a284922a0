"""What a folder of predictions holds: of which model, and of which pictures as they were then."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from time import time_ns
from typing import Any

from dnlnet.data.inputs import JOB_FILE
from dnlnet.files import atomic_write, checksum, explain_write_errors

Stamp = list[Any]  # content of a picture, and sizes of its results: they tell whether both are still what they were


class Job:
    """Predictions of one model, with one set of settings, into a folder.

    Each process notes what it has done in a file of its own, a line for each picture; what a stopped process left of
    a line is not counted.

    Args:
        out: the folder.
        settings: the model and all else that the results depend on.
        rank: of this process.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], rank: int = 0) -> None:
        self._out, self._settings = out, dict(settings)
        self._identity = sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]
        self._notes = out / f"{Path(JOB_FILE).stem}.{rank}.jsonl"
        self._made = not out.exists()

    def claim(self, force: bool = False) -> None:
        """Mark the folder as this job's; one that holds something else is refused unless `force`."""
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
        """Remove the mark, and the folder if it was made for this job, where there is no result beside it."""
        if [path.name for path in self._out.iterdir()] == [JOB_FILE]:
            (self._out / JOB_FILE).unlink()
            if self._made:
                self._out.rmdir()

    def done_before(self) -> dict[str, Stamp]:
        """The pictures that have results of this job, by the names of these, as they were then."""
        newest: dict[str, tuple[int, str, Stamp]] = {}
        for notes in self._out.glob(f"{Path(JOB_FILE).stem}.*.jsonl"):
            for line in notes.read_text(errors="replace").splitlines():
                try:
                    name, time, identity, stamp = json.loads(line)
                    newest[name] = max((time, identity, stamp), newest.get(name, (0, "", [])))
                except (ValueError, TypeError, RecursionError):
                    continue  # cut off when the process was stopped, or damaged
        # Results of another job have taken the place of this one's.
        return {name: stamp for name, (_, identity, stamp) in newest.items() if identity == self._identity}

    def note(self, name: Path, stamp: Stamp) -> None:
        """Note that a picture has its results."""
        with explain_write_errors(self._notes), self._notes.open("a") as file:
            # On a line of its own, also behind half a line.
            file.write("\n" + json.dumps([str(name), time_ns(), self._identity, stamp]))


def content_of(path: Path) -> str:
    """Return a checksum of a file's content; of a folder, of the names and contents of the files in it."""
    if not path.is_dir():
        return checksum(path)[:16]
    listed = [(file.name, checksum(file)) for file in _files_in(path)]
    return sha256(json.dumps(listed).encode()).hexdigest()[:16]


def sizes_of(paths: Iterable[Path]) -> list[list[int]]:
    """Return the size of each file; of a folder, those of the files in it."""
    return [[file.stat().st_size for file in (_files_in(path) if path.is_dir() else [path])] for path in paths]


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is damaged; choose another folder for the results, or --force") from None
