"""A small disk that gets full: a tmpfs where mounting is allowed."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = 2**31  # bytes, once room has been made


def mounting_allowed(folder: Path) -> bool:
    """Whether this user may mount a tmpfs."""
    folder.mkdir(parents=True, exist_ok=True)
    if _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", folder) != 0:
        return False
    _unmount(folder)
    return True


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """A tmpfs of so many bytes at `folder`; gives a function that makes room."""
    if _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder) != 0:
        raise OSError(f"{folder}: could not be mounted")
    try:
        yield lambda: _require(_mount("-o", f"remount,size={ROOM}", folder))
    finally:
        _unmount(folder)


def _mount(*arguments: object) -> int:
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True).returncode


def _unmount(folder: Path) -> None:
    _require(subprocess.run(["umount", str(folder)], capture_output=True).returncode)


def _require(code: int) -> None:
    if code != 0:
        raise OSError("mount failed")
