"""Inspection of PyTorch files before they are read: the names in them, and the work of reading them.

A file of a few kilobytes can unpack to gigabytes, or describe values that take forever to build. `torch.save` writes
no such files, so they are refused. Nothing in a file is executed.
"""

import pickletools
import struct
import warnings
import zipfile
import zlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import IO

_ZIP = b"PK\x03\x04"  # first bytes of a file written by PyTorch 1.6 or later
_OLD_PICKLES = 5  # in an older file: two versions, the machine, the saved object, and the keys of the data
_MOST_VALUES = 10_000_000  # in a pickle; a checkpoint has about ten thousand
_DEEPEST = 1000  # nesting of tuples; hashing a tuple nested a hundred times deeper crashes Python

# Errors raised for damaged zip files and pickles.
_BROKEN = (
    *(ValueError, EOFError, LookupError, RuntimeError, struct.error, OverflowError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
)


class _RefusedError(Exception):
    """Error for a file that must not be read, with the reason."""


def find_names(path: Path) -> set[str]:
    """Return the names of the classes and functions in a file's pickles.

    Raises ValueError if the archive cannot be read, or if reading it would take far more time or memory than the size
    of the file suggests. PyTorch reports other damage when it reads the file.
    """
    names: set[str] = set()
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stream in _pickles(file, path.stat().st_size):
                _add_names(stream, names)
    except _RefusedError as error:
        raise ValueError(f"{path}: {error}") from None
    except _BROKEN:
        pass
    return names


def _pickles(file: IO[bytes], size: int) -> Iterable[IO[bytes]]:
    if file.read(len(_ZIP)) != _ZIP:
        file.seek(0)
        return [file] * _OLD_PICKLES
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            if any(record.filename.endswith("/constants.pkl") for record in records):
                raise _RefusedError("is a TorchScript program; save the state dict of its network")
            if excess := find_excess(records, size):
                raise _RefusedError(f"{excess}: save its state dict again")
            return [BytesIO(archive.read(record)) for record in records if record.filename.endswith("/data.pkl")]
    except (OSError, *_BROKEN):
        raise _RefusedError("is not a weights file, or is damaged") from None


def find_excess(records: Iterable[zipfile.ZipInfo], size: int) -> str | None:
    """Return a description of the fault if an archive of this size unpacks to more bytes than it has, else None.

    Compressed records, and several entries for the same bytes, can unpack to any size.
    """
    unpacked = sum(record.file_size for record in records)
    if unpacked <= size:
        return None
    return f"unpacks to {unpacked:,} bytes, but has {size:,}; expected records as PyTorch writes them, uncompressed"


def _add_names(stream: IO[bytes], names: set[str]) -> None:
    """Add the names in a pickle. Raises if it builds too many values.

    Hashing a tuple, as a dictionary key, visits every value in it, and a tuple may contain another one many times.
    Therefore this simulates the stack of the pickle, with the number of nested values and the depth of each value.
    """
    plain = (1, 0)
    stack: list[tuple[int, int] | None] = []  # (number of values, depth); None is a mark
    memo: dict[object, tuple[int, int]] = {}
    built = 0
    for code, argument, _ in pickletools.genops(stream):
        if code.name in ("GLOBAL", "INST") and isinstance(argument, str):
            module, _, name = argument.partition(" ")
            renamed = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
            names |= {f"{module}.{name}", ".".join(renamed)}  # the names in Python 2 and 3
            if renamed == ("builtins", "bytearray"):
                raise _RefusedError("holds a bytearray, which may be of any size; save its state dict alone")
        if "PUT" in code.name:
            memo[argument] = stack[-1] or plain
            continue
        taken = []
        for kind in reversed(code.stack_before):
            if kind is pickletools.stackslice:
                while (one := stack.pop()) is not None:
                    taken.append(one)
            elif kind is not pickletools.markobject:
                taken.append(stack.pop() or plain)
        made = plain
        if "GET" in code.name:
            made = memo[argument]
        elif "TUPLE" in code.name:
            made = (1 + sum(size for size, _ in taken), 1 + max((depth for _, depth in taken), default=0))
        stack.extend(None if kind is pickletools.markobject else made for kind in code.stack_after)
        built += made[0]
        if built > _MOST_VALUES or made[1] > _DEEPEST:
            raise _RefusedError(
                f"the values in it are more than {_MOST_VALUES:,}, or tuples nested more than {_DEEPEST} deep; save "
                "its state dict alone"
            )
