"""One run, one owner: nobody else writes into its folder while it goes on."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from dnlnet.engine import distributed
from dnlnet.files import json_text, release_lock, remove_leftovers, take_lock

LOCK_FILE = "run.lock"


@contextmanager
def owned(folder: Path, report: Callable[[str], None] = print) -> Iterator[None]:
    """Own the folder of a run, which is made if there is none and removed again if it stays empty.

    The main process owns it for all. A second run is refused with the name of the first; one that has died loses the
    folder at once, and what it was writing is removed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, owned(Path(folder)):
    ...     [path.name for path in Path(folder).iterdir()]
    ['run.lock']
    """
    path = folder / LOCK_FILE
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    lock: int | None = None

    def take() -> None:
        nonlocal lock
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take(path, report)
        remove_leftovers(folder)
        for place in folder.iterdir():
            if place.is_dir():
                remove_leftovers(place)

    distributed.in_main(take)
    try:
        yield
    finally:
        if lock is not None:
            release_lock(path, lock)
        if distributed.is_main():
            _remove_empty(made)


def _take(path: Path, report: Callable[[str], None]) -> int | None:
    before = _owner(path)
    try:
        lock = take_lock(path)
    except BlockingIOError:
        raise OSError(
            f"{path.parent}: a run is going on here, of {_owner(path) or 'another process'}; "
            "wait until it ends, stop it, or choose another --out"
        ) from None
    except PermissionError:
        raise
    except OSError as error:
        report(f"{path}: cannot be locked here ({error}); see to it that no second run writes into this folder")
        return None
    if before is not None:
        report(f"{path.parent}: taken over from {before}, which ended without giving it up")
    os.truncate(lock, 0)
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    os.write(lock, json_text({"host": socket.gethostname(), "pid": os.getpid(), "since": since}).encode())
    return lock


def _owner(path: Path) -> str | None:
    """Who wrote the file of a lock, in words; None if it says nothing."""
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
