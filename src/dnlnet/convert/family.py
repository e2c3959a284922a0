"""What a code base's checkpoints are turned into, and by what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.recipes.schema import Recipe


@dataclass(frozen=True)
class Checkpoint:
    """A file of another code base.

    Args:
        path: where it is; its name may say what its tensors do not.
        state: the network's tensors by the names they have there, without the prefixes of wrappers.
        meta: what else the file says about itself, as plain values.
        ignored: kinds of objects of other programs that the file holds too, and that were not made.
    """

    path: Path
    state: Mapping[str, Tensor]
    meta: Mapping[str, Any]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Converted:
    """A model of this package.

    Args:
        state: its tensors, by our names.
        recipe: what they are weights of.
        classes: what it knows.
        notes: what could not be read from the file and was assumed, or is otherwise worth knowing; said to the user.
        unused: names of tensors of the file that have no place in the model and are not known to be needless.
        family: the name of its family; filled in by `dnlnet.convert.convert`.
    """

    state: dict[str, Tensor]
    recipe: Recipe
    classes: Classes
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    family: str = ""


@dataclass(frozen=True)
class Family:
    """The checkpoints of one code base.

    Args:
        name: as users see it.
        source: what is converted, in one line.
        matches: whether a state dict is one of them, told by its names alone.
        convert: makes it a model; raises ValueError for one that this package has no network for.
    """

    name: str
    source: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[Checkpoint], Converted]
