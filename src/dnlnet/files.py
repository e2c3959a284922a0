"""Atomic writes of files, errors of writing that name the file, and signatures of result files."""

import errno
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from math import isfinite
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, Literal

from dnlnet.locks import working_folder

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EROFS: "the disk is read-only",
}
_STANDARD = {"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}  # descriptors by name

ResultKind = Literal["json", "page", "figure", "model"]
SIGNATURE = "dnlnet"  # of figures
_SIGNS: Mapping[ResultKind, re.Pattern[bytes]] = {
    "json": re.compile(rb"\A(?:[\[{]\n [^ \n]|\[\]\n|\{\}\n)"),  # indented by a single space
    "page": re.compile(rb'<meta name="generator" content="dnlnet'),
    "figure": re.compile(rb"Software\0dnlnet|/Creator \(dnlnet"),
    # Metadata of safetensors files, properties of ONNX graphs, and extra files of PyTorch programs.
    "model": re.compile(rb'"dnlnet":"|\n\x06dnlnet|extra/dnlnet'),
}
_NEAR = 65_536  # bytes searched at either end


class NotWrittenError(OSError):
    """Error for a file that could not be written; `strerror` is the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: could not be written: {self.strerror}; fix that and try again"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` when the block ends without an error.

    The content is flushed to disk before it is renamed, so a power cut leaves either the old file or the new one.
    Other files next to the temporary one are removed, and so are leftovers of killed writers of the same file. Links
    are followed. Devices and pipes are written to and never replaced; `-` is standard output.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     (Path(folder) / "a.txt").read_text(), len(list(Path(folder).iterdir()))
    ('all of it', 1)
    """
    with explain_write_errors(path):
        if is_stream(path):
            with TemporaryDirectory() as place:
                temporary = Path(place) / path.name
                yield temporary
                _copy_to_stream(temporary, path)
            return
        path = path.resolve() if path.is_symlink() else path
        make_folder(path.parent)
        with working_folder(path) as folder:
            temporary = folder / path.name
            mode = _usual_mode(temporary)
            yield temporary
            temporary.chmod(mode)  # some libraries write files that only their owner may read
            _flush(temporary)
            temporary.replace(path)
            _flush(path.parent)


def is_stream(path: Path) -> bool:
    """Return whether a path is standard output (`-`), a device or a pipe, which cannot be replaced.

    >>> is_stream(Path("-")), is_stream(Path("/dev/null")), is_stream(Path("a.json"))
    (True, True, False)
    """
    if stream_descriptor(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def stream_descriptor(path: Path) -> int | None:
    """Return the open file that a path stands for. Opening its name again would truncate a redirected output."""
    if str(path) in _STANDARD:
        return _STANDARD[str(path)]
    found = re.fullmatch(r"(?:/dev|/proc/self)/fd/(\d+)", str(path))
    return None if found is None else int(found[1])


def _copy_to_stream(source: Path, path: Path) -> None:
    descriptor = stream_descriptor(path)
    if descriptor is not None:
        sys.stdout.flush()
    # Open a pipe or device without creating it or truncating a redirected file.
    opened = os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
    with source.open("rb") as file, open(opened, "wb") as stream:
        copyfileobj(file, stream)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; an error names a file or link that is in the way.

    >>> make_folder(Path("/dev/null/run"))
    Traceback (most recent call last):
    FileExistsError: /dev/null: is a file; choose another folder
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        for place in (*reversed(folder.parents), folder):
            if not place.is_dir() and (place.is_symlink() or place.exists()):
                gone = place.is_symlink() and not place.exists()
                what = f"a link to {os.readlink(place)}, which does not exist" if gone else "a file"
                raise FileExistsError(f"{place}: is {what}; choose another folder") from None
        raise


def _usual_mode(path: Path) -> int:
    """Return the permissions of a new file under the umask, which cannot be read without changing it."""
    path.touch()
    mode = path.stat().st_mode & 0o777
    path.unlink()
    return mode


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raise `NotWrittenError` for a full disk and similar failures, however a library reports them."""
    try:
        yield
    except NotWrittenError:
        raise
    except Exception as error:
        if (number := _write_failure(error)) not in _REASONS:
            raise
        raise NotWrittenError(number, _REASONS[number], str(path)) from error


def _write_failure(error: Exception) -> int | None:
    """Return the errno of an error, even if a library hides it."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"os error (\d+)", str(error))):  # message of Rust libraries
        number = int(found[1])
    if number is None and os.strerror(errno.ENOSPC) in str(error):
        number = errno.ENOSPC
    return number


def json_text(content: Any, indent: int | None = None) -> str:
    """Return the content as JSON, with `null` for infinities and NaN.

    >>> json_text({"score": float("nan"), "losses": [1.5, float("inf")]})
    '{"score": null, "losses": [1.5, null]}'
    """
    return json.dumps(_replace_nonfinite(content), indent=indent, allow_nan=False)


def write_json(path: Path, content: Any) -> None:
    """Write the content as indented JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json_text(content, indent=1) + "\n")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file.

    >>> checksum(Path("/dev/null"))[:8]
    'e3b0c442'
    """
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def content_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files."""
    if not path.is_dir():
        return checksum(path)
    listed = [(file.name, checksum(file)) for file in files_in(path)]
    return sha256(json.dumps(listed).encode()).hexdigest()


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder, sorted, without those of its folders."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def _replace_nonfinite(content: Any) -> Any:
    if isinstance(content, float):
        return content if isfinite(content) else None
    if isinstance(content, dict):
        return {key: _replace_nonfinite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_replace_nonfinite(value) for value in content]
    return content


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no such call for folders
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_result(path: Path, kind: ResultKind) -> bool:
    """Return whether dnlnet wrote this file as a result of this kind."""
    with path.open("rb") as file:
        start = file.read(_NEAR)
        file.seek(max(0, path.stat().st_size - _NEAR))
        return _SIGNS[kind].search(start + file.read(_NEAR)) is not None
