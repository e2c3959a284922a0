"""What a code base's checkpoints are turned into, and by what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.recipes.schema import Recipe


@dataclass(frozen=True)
class ForeignCheckpoint:
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
class Assumption:
    """What nothing in a file says, and how it was taken.

    Args:
        text: said to the user, with what changes it.
        keys: parts of the recipe that it is about; a setting of one of them makes it void.
    """

    text: str
    keys: tuple[str, ...]

    def holds(self, settings: Sequence[str]) -> bool:
        """Whether none of the settings, each ``key=value``, says otherwise.

        >>> Assumption("no scale", ("model.block",)).holds(["model.block.scaled=true"])
        False
        """
        given = [f"{setting.partition('=')[0].strip()}." for setting in settings]
        about = [f"{key}." for key in self.keys]
        return not any(key.startswith(part) or part.startswith(key) for key in given for part in about)


@dataclass(frozen=True)
class Converted:
    """A model of this package.

    Args:
        state: its tensors, by our names.
        recipe: what they are weights of.
        classes: what it knows.
        notes: what is worth knowing about it; said to the user.
        assumed: what could not be read from the file.
        unused: names of tensors of the file that have no place in the model and are not known to be needless.
        names: beginnings of the names of its tensors there, and what they are here.
        family: the name of its family; filled in by `dnlnet.convert.convert`.
    """

    state: dict[str, Tensor]
    recipe: Recipe
    classes: Classes
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    unused: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    family: str = ""

    def said(self, settings: Sequence[str] = ()) -> tuple[str, ...]:
        """All that the user is told: the notes, and what was assumed and not replaced by a setting."""
        return (*self.notes, *(row.text for row in self.assumed if row.holds(settings)))


@dataclass(frozen=True)
class Family:
    """The checkpoints of one code base.

    Args:
        name: as users see it.
        source: what is converted, in one line.
        matches: whether a state dict is one of them, told by its names alone.
        convert: makes it a model; raises ValueError for one that this package has no network for.
        inside: beginnings of the names of all layers that the outputs depend on.
        config: where in `ForeignCheckpoint.meta` the text of a configuration is; None if it is no text.
    """

    name: str
    source: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[ForeignCheckpoint], Converted]
    inside: tuple[str, ...]
    config: str | None = None
