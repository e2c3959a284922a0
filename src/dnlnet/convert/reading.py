"""Checkpoints of other code bases, read without running anything in them."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.backbones import read_content, split_checkpoint
from dnlnet.convert.family import Checkpoint

# What wrappers of networks put before every name.
_PREFIXES = ("module.", "_orig_mod.")

# What training leaves beside the weights, and nobody needs to use them.
_LEFT_OUT: Mapping[str, str] = {
    "optimizer": "the state of the optimiser",
    "optimizer_state": "the state of the optimiser",
    "param_schedulers": "the state of the schedule",
    "message_hub": "the log",
    "ema_state_dict": "an averaged copy of the weights",
}


class _Ignored:
    """Stands in for an object that is of no use here: takes anything and does nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def __new__(cls, *_: object) -> "_Ignored":
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        pass


# Classes of other programs that are found in checkpoints, and what is made in their place: their own code never runs.
_STAND_INS: Mapping[str, Callable[..., Any]] = {
    "pyhocon.config_tree.ConfigTree": OrderedDict,
    "pyhocon.config_tree.ConfigList": list,
    "pyhocon.config_tree.NoneValue": _Ignored,
    "mmengine.logging.history_buffer.HistoryBuffer": _Ignored,
    "numpy.dtype": _Ignored,
    "numpy.ndarray": _Ignored,
    "numpy.core.multiarray.scalar": _Ignored,
    "numpy.core.multiarray._reconstruct": _Ignored,
    "numpy._core.multiarray.scalar": _Ignored,
    "numpy._core.multiarray._reconstruct": _Ignored,
}


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint as its family gets it; what lies beside the weights, and in the file's own `meta`, is its meta."""
    state, rest = split_checkpoint(path, read_content(path, _STAND_INS))
    own = rest.pop("meta", None)
    return Checkpoint(path, unwrapped(state), {**rest, **(own if isinstance(own, Mapping) else {})})


def unwrapped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the prefixes that all their names share because of a wrapper.

    >>> import torch
    >>> list(unwrapped({"module.a.weight": torch.ones(1), "module.b.weight": torch.ones(1)}))
    ['a.weight', 'b.weight']
    """
    inside = dict(state)
    for prefix in _PREFIXES * 2:
        if all(name.startswith(prefix) for name in inside):
            inside = {name.removeprefix(prefix): tensor for name, tensor in inside.items()}
    return inside


def left_out(checkpoint: Checkpoint) -> list[str]:
    """What the file holds beside the weights that a model file does not, in words."""
    return list(dict.fromkeys(what for name, what in _LEFT_OUT.items() if name in checkpoint.meta))
