"""Lock of a run folder, so that only one process writes to it."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dnlnet.files import json_text, make_folder
from dnlnet.locks import acquire_lock, release_lock, remove_leftovers
from dnlnet.progress import SILENT, Progress
from dnlnet.signals import hold_stop_signals

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_FILE = "run.lock"


@contextmanager
def lock_run_folder(folder: Path, progress: Progress = SILENT) -> Iterator[None]:
    """Lock the folder of a run, creating the folder if needed and removing it if it stays empty.

    The main process holds the lock for all processes. A second run raises an error that names the first. A run that
    dies releases its lock, and the next one removes its unfinished files.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, lock_run_folder(Path(folder)):
    ...     [path.name for path in Path(folder).iterdir()]
    ['run.lock']
    """
    from dnlnet.engine import distributed

    path = folder / LOCK_FILE
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    lock: FileLock | None = None

    def acquire() -> None:
        nonlocal lock
        make_folder(folder)
        with hold_stop_signals():
            lock = _acquire(path, progress)
        remove_leftovers(folder)
        for place in folder.iterdir():
            if place.is_dir():
                remove_leftovers(place)

    try:
        distributed.in_main(acquire)
        yield
    finally:
        if lock is not None:
            release_lock(lock)
        if distributed.is_main():
            _remove_empty(made)


def _acquire(path: Path, progress: Progress) -> "FileLock | None":
    before = _owner(path)
    try:
        lock = acquire_lock(path)
    except BlockingIOError:
        raise OSError(
            f"{path.parent}: in use by {_owner(path) or 'another process'}; "
            "wait until that run ends, stop it, or choose another --out"
        ) from None
    except PermissionError:
        raise
    except OSError as error:
        progress.say(f"{path}: cannot be locked ({error}); make sure that no second run writes to this folder")
        return None
    if before is not None:
        progress.say(f"{path.parent}: taken over from {before}, which died without releasing it")
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    path.write_text(json_text({"host": socket.gethostname(), "pid": os.getpid(), "since": since}))
    return lock


def _owner(path: Path) -> str | None:
    """Describe the process that wrote a lock file, or return None if it is unknown."""
    try:
        owner = json.loads(path.read_text())
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
