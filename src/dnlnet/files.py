"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` once the block has ended without an error.

    What was written is on the disk before it gets its name, so that a power cut leaves the old file or the new one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     (Path(folder) / "a.txt").read_text()
    'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    temporary = folder / path.name
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        folder.rmdir()


def checksum(path: Path) -> str:
    """SHA-256 of a file's content.

    >>> checksum(Path("/dev/null"))[:8]
    'e3b0c442'
    """
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no such call for folders
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
