"""Kinds of input files, Unicode forms of their names, and lines of list files."""

import os
import stat
import unicodedata
from functools import lru_cache
from pathlib import Path

_LONGEST_LINE = 5000  # characters; a path has 4096 at most


def file_fault(path: Path) -> str | None:
    """Return why a path is not a regular file, or None if it is one.

    Call this before opening a file, because opening a pipe waits for a writer, and reading a device may never end.

    >>> file_fault(Path("/nowhere/a.png")), file_fault(Path("/")), file_fault(Path("/dev/null"))
    ('no such file', 'is a folder; expected a file', 'is a device; expected a file')
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"is a link to {os.readlink(path)}, which does not exist" if path.is_symlink() else "no such file"
    except NotADirectoryError:
        return "no such file"
    except ValueError:
        return "no such file: no file can have this name"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return f"is {kinds.get(stat.S_IFMT(mode), 'a device')}; expected a file"


def composed(name: str) -> str:
    """Return a name in Unicode form NFC, to compare it with other names.

    macOS writes é as two characters and other systems write one, and files move between them.

    >>> composed("e\u0301") == "\u00e9"
    True
    """
    return unicodedata.normalize("NFC", name)


def on_disk(path: Path) -> Path:
    """Return a path with its names in the Unicode form used on disk; a missing path stays unchanged.

    >>> on_disk(Path("/nowhere/\u00e9.png")).name == "\u00e9.png"
    True
    """
    if str(path).isascii() or path.exists():
        return path
    parent = on_disk(path.parent)
    try:
        return parent / _listed(parent, parent.stat().st_mtime_ns).get(composed(path.name), path.name)
    except OSError:
        return path


@lru_cache(maxsize=64)
def _listed(folder: Path, _changed: int) -> dict[str, str]:
    """Return the names in a folder by composed form. The cache lists a changed folder again."""
    return {composed(name): name for name in os.listdir(folder)}


def text_lines(path: Path) -> list[tuple[int, str]]:
    """Return the non-blank lines of a list file, `composed`, with their numbers from 1.

    >>> text_lines(Path("/nowhere/train.csv"))
    Traceback (most recent call last):
    FileNotFoundError: /nowhere/train.csv: no such file
    """
    if fault := file_fault(path):
        raise FileNotFoundError(f"{path}: {fault}")
    text = composed(path.read_text(encoding="utf-8-sig", errors="replace"))  # bad bytes name a missing file
    if "\0" in text:
        raise ValueError(f"{path}: is not text in UTF-8; save it in that encoding")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for number, line in lines:
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"{path}: line {number} has {len(line)} characters; expected a file on each line")
    return lines
