"""Locks that are released when their owner dies, and the working folders of writers.

A file is first written to a folder next to its destination, `.writing-...`, which its writer locks. The kernel
releases the lock of a process that dies, so an abandoned folder can be told from one in use, and removed.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from dnlnet.signals import hold_stop_signals

if TYPE_CHECKING:
    from filelock import FileLock


def acquire_lock(path: Path) -> "FileLock":
    """Lock a file without waiting, creating it if needed.

    The lock is held until it is released or this process ends, however it ends. Forked processes do not inherit it.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file system does not support locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path)) from None
    except OSError:
        path.unlink(missing_ok=True)  # nobody can lock it
        raise
    return lock


def release_lock(lock: "FileLock") -> None:
    """Remove a lock file and release its lock."""
    if lock.is_locked and os.name != "nt":  # Windows does not remove open files; there `release` removes it
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


@contextmanager
def working_folder(path: Path) -> Iterator[Path]:
    """Create an empty folder for one writer, next to the file to be written, and remove it afterwards.

    Its name has a fixed length, because the file's own may be as long as the file system allows.
    """
    beginning = f".writing-{sha256(os.fsencode(path.name)).hexdigest()[:16]}"
    taken = False
    try:
        with hold_stop_signals():
            for number in count():
                place = path.parent / f"{beginning}-{number}"
                taken, lock = _acquire_folder(place)
                if taken:
                    break
        content = place / "content"
        for later in count(number + 1):  # left by writers that were killed together
            if not (path.parent / f"{beginning}-{later}").exists():
                break
            _remove_leftover(path.parent / f"{beginning}-{later}")
        rmtree(content, ignore_errors=True)
        content.mkdir()
        yield content
    finally:
        if taken:
            with hold_stop_signals():
                _release_folder(place, lock)


def _acquire_folder(place: Path) -> tuple[bool, "FileLock | None"]:
    """Create a folder or take over an abandoned one; return whether it is ours, and its lock where locks exist."""
    while True:
        try:
            place.mkdir()
            made = True
        except FileExistsError:
            made = False
        try:
            return True, acquire_lock(place / "lock")
        except FileNotFoundError:
            continue  # its owner has just removed it
        except BlockingIOError:
            return False, None
        except OSError:
            return made, None  # a file system without locks


def _remove_leftover(place: Path) -> None:
    with suppress(OSError):  # in use, not ours to remove, or gone already
        _release_folder(place, acquire_lock(place / "lock"))


def _release_folder(place: Path, lock: "FileLock | None") -> None:
    rmtree(place / "content", ignore_errors=True)
    if lock is not None:
        release_lock(lock)
    with suppress(OSError):  # another writer has just taken it
        place.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove the working folders of killed writers; those of live writers stay.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     (Path(folder) / ".writing-0123456789abcdef-0").mkdir()
    ...     remove_leftovers(Path(folder))
    ...     list(Path(folder).iterdir())
    []
    """
    for place in folder.iterdir():
        if is_leftover(place):
            _remove_leftover(place)


def is_leftover(path: Path) -> bool:
    """Return whether this is a working folder.

    >>> is_leftover(Path("runs/.writing-0123456789abcdef-0")), is_leftover(Path("runs/run.yaml"))
    (True, False)
    """
    return re.fullmatch(r"\.writing-[0-9a-f]{16}-\d+", path.name) is not None
