"""Files that are written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` once the block has ended without an error.

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
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        folder.rmdir()
