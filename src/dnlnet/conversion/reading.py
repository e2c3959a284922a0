"""Reading of other code bases' checkpoints without executing anything in them.

A checkpoint is a pickle, which names the classes and functions that create its objects. PyTorch's safe loader creates
tensors and plain values and refuses every other name. Here a class that does nothing replaces each such name, and its
objects are left out.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.backbones import read_content, split_checkpoint
from dnlnet.conversion.family import ForeignCheckpoint

# Prefixes that wrappers add to all names.
_PREFIXES = ("module.", "_orig_mod.")

# Parts of a training checkpoint that inference does not need.
_LEFT_OUT: Mapping[str, str] = {
    "optimizer": "the state of the optimiser",
    "optimizer_state": "the state of the optimiser",
    "param_schedulers": "the state of the schedule",
    "message_hub": "the log",
    # mmengine swaps the two before saving.
    "ema_state_dict": "the weights without averaging (the weights are the average, as mmengine saves it)",
}

# Plain values that replace other programs' containers.
_CONTAINERS: Mapping[str, Callable[..., Any]] = {
    "pyhocon.config_tree.ConfigTree": OrderedDict,
    "pyhocon.config_tree.ConfigList": list,
}
_DEPTH = 64  # deepest nesting of a configuration
_MOST_VALUES = 1_000_000  # besides the weights; nested lists may repeat values exponentially
_MOST_NAMES = 1000  # most classes and functions; a checkpoint names about twenty


class Ignored:
    """Stand-in for an object that is neither a tensor nor a plain value."""

    kind = "an unknown kind"  # the class it stands in for

    def __init__(self, *_: object) -> None:
        """Accept any arguments."""

    def __new__(cls, *_: object) -> "Ignored":
        """Accept any arguments."""
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        """Accept any state."""


def read_checkpoint(path: Path) -> ForeignCheckpoint:
    """Read a checkpoint. Its `meta` is everything besides the weights, merged with the file's own `meta`."""
    state, rest = split_checkpoint(path, read_content(path, _stand_ins))
    remove = _RemoveStandIns()
    outer = remove(rest)
    if remove.sizes[id(rest)] > _MOST_VALUES:
        raise ValueError(
            f"{path}: holds more than {_MOST_VALUES:,} values besides its weights, counting repeated ones; save its "
            "state dict alone"
        )
    own = outer.pop("meta", None)
    meta = {**outer, **(own if isinstance(own, Mapping) else {})}
    return ForeignCheckpoint(path, strip_wrappers(state), meta, tuple(sorted(remove.ignored)))


def _stand_ins(names: set[str]) -> dict[str, Callable[..., Any]]:
    """Return replacements of these classes and functions; none if there are too many for a checkpoint."""
    ignored = (
        {name: type("Ignored", (Ignored,), {"kind": name}) for name in names} if len(names) <= _MOST_NAMES else {}
    )
    return {**ignored, **_CONTAINERS}


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
    """Describe the parts of the file that a model file does not keep."""
    words = [what for name, what in _LEFT_OUT.items() if name in checkpoint.meta]
    if checkpoint.ignored:
        kinds = ", ".join(kind if re.fullmatch(r"[\w.]+", kind) else ascii(kind) for kind in checkpoint.ignored[:8])
        words.append(f"objects of other programs ({kinds}{', ...' * (len(checkpoint.ignored) > 8)})")
    return list(dict.fromkeys(words))


class _RemoveStandIns:
    """Remove stand-ins from nested values and collect their classes in `ignored`.

    >>> remove = _RemoveStandIns()
    >>> remove({"a": [1, Ignored()], "b": Ignored()}), remove.ignored
    ({'a': [1, None]}, {'an unknown kind'})
    """

    def __init__(self) -> None:
        self.ignored: set[str] = set()
        self._done: dict[int, Any] = {}  # values may occur several times, or inside themselves
        self.sizes: dict[int, int] = {}  # number of nested values by id

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
        inside = value.values() if isinstance(value, dict) else value
        self.sizes[id(value)] = 1 + sum(self.sizes.get(id(item), 1) for item in inside)
        return done
