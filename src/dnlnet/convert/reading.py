"""Read checkpoints of other code bases without running anything in them.

A checkpoint is a pickle, which names the classes and functions that create its objects. PyTorch's safe loader creates
tensors and plain values, and refuses every other name. Here each such name is replaced by a class that does nothing,
so that the file can be read; those objects are left out.
"""

import pickletools
import re
import struct
import warnings
import zipfile
import zlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from dnlnet.backbones import read_content, split_checkpoint
from dnlnet.convert.family import ForeignCheckpoint

# Prefixes that wrappers add to every name.
_PREFIXES = ("module.", "_orig_mod.")

# What training stores besides the weights, and inference does not need.
_LEFT_OUT: Mapping[str, str] = {
    "optimizer": "the state of the optimiser",
    "optimizer_state": "the state of the optimiser",
    "param_schedulers": "the state of the schedule",
    "message_hub": "the log",
    # mmengine swaps the two before it saves.
    "ema_state_dict": "the weights without averaging (the weights are the average, as mmengine saves it)",
}

# Other programs' classes for plain values, and what replaces them.
_CONTAINERS: Mapping[str, Callable[..., Any]] = {
    "pyhocon.config_tree.ConfigTree": OrderedDict,
    "pyhocon.config_tree.ConfigList": list,
}
_ZIP = b"PK\x03\x04"  # start of a file of PyTorch 1.6 and later
_OLD_PICKLES = 4  # pickles before the data of an older file: two versions, the machine, and what was saved
_DEPTH = 64  # deepest nesting of a configuration
_MOST = 1000  # most classes and functions; a checkpoint names about twenty


class Ignored:
    """Stands in for an object that is neither a tensor nor a plain value: accepts anything and does nothing."""

    kind = "an unknown kind"  # the class it stands in for

    def __init__(self, *_: object) -> None:
        """Accept any arguments."""

    def __new__(cls, *_: object) -> "Ignored":
        """Accept any arguments."""
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        """Accept any state."""


def read_checkpoint(path: Path) -> ForeignCheckpoint:
    """Read a checkpoint; its `meta` is everything besides the weights, merged with the file's own `meta`."""
    stand_ins = {name: type("Ignored", (Ignored,), {"kind": name}) for name in _find_names(path)}
    state, rest = split_checkpoint(path, read_content(path, {**stand_ins, **_CONTAINERS}))
    remove = _RemoveStandIns()
    outer = remove(rest)
    own = outer.pop("meta", None)
    meta = {**outer, **(own if isinstance(own, Mapping) else {})}
    return ForeignCheckpoint(path, strip_wrappers(state), meta, tuple(sorted(remove.ignored)))


def strip_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strip the wrapper prefixes that all names share.

    >>> import torch
    >>> list(strip_wrappers({"module.a.weight": torch.ones(1), "module.b.weight": torch.ones(1)}))
    ['a.weight', 'b.weight']
    """
    inside = dict(state)
    for prefix in _PREFIXES * 2:
        if all(name.startswith(prefix) for name in inside):
            inside = {name.removeprefix(prefix): tensor for name, tensor in inside.items()}
    return inside


def describe_left_out(checkpoint: ForeignCheckpoint) -> list[str]:
    """What the file holds besides the weights and a model file does not, in words."""
    words = [what for name, what in _LEFT_OUT.items() if name in checkpoint.meta]
    if checkpoint.ignored:
        kinds = ", ".join(kind if re.fullmatch(r"[\w.]+", kind) else ascii(kind) for kind in checkpoint.ignored[:8])
        words.append(f"objects of other programs ({kinds}{', ...' * (len(checkpoint.ignored) > 8)})")
    return list(dict.fromkeys(words))


class _RemoveStandIns:
    """Remove stand-ins from nested values; their classes are collected in `ignored`.

    >>> remove = _RemoveStandIns()
    >>> remove({"a": [1, Ignored()], "b": Ignored()}), remove.ignored
    ({'a': [1, None]}, {'an unknown kind'})
    """

    def __init__(self) -> None:
        self.ignored: set[str] = set()
        self._done: dict[int, Any] = {}  # for values that occur several times, or inside themselves

    def __call__(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, Ignored):
            self.ignored.add(value.kind)
            return None
        if not isinstance(value, dict | list | tuple):
            return value
        if depth > _DEPTH:
            return None
        if id(value) in self._done:
            return self._done[id(value)]
        self._done[id(value)] = None
        if isinstance(value, dict):
            kept = {k: self(v, depth + 1) for k, v in value.items() if not isinstance(k, Ignored)}
            done: Any = {k: v for k, v in kept.items() if not isinstance(value[k], Ignored)}
        else:
            done = [self(item, depth + 1) for item in value]
            done = tuple(done) if isinstance(value, tuple) else done
        self._done[id(value)] = done
        return done


def _find_names(path: Path) -> set[str]:
    """The classes and functions named in a file's pickles, which are not run."""
    names: set[str] = set()
    if not path.is_file():
        return names
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stream in _pickles(file):
                for code, argument, _ in pickletools.genops(stream):
                    if code.name in ("GLOBAL", "INST") and isinstance(argument, str):
                        module, _, name = argument.partition(" ")
                        renamed = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
                        names |= {f"{module}.{name}", ".".join(renamed)}  # as Python 2 had it, and now
    except (OSError, *_BROKEN):
        pass  # PyTorch reads it next, and says what is wrong
    return names if len(names) <= _MOST else set()


# Errors raised for damaged zip files and pickles.
_BROKEN = (
    *(ValueError, EOFError, IndexError, KeyError, RuntimeError, struct.error, OverflowError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def _pickles(file: IO[bytes]) -> Iterator[IO[bytes]]:
    if file.read(len(_ZIP)) == _ZIP:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith("/data.pkl"):
                    yield BytesIO(archive.read(name))
        return
    file.seek(0)
    for _ in range(_OLD_PICKLES):
        yield file
