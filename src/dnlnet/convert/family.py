"""Families of checkpoints, one per code base, and what they are converted to."""

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
        path: the file; its name may say what the tensors do not.
        state: the network's tensors by their original names, without the prefixes of wrappers.
        meta: the rest of the file, as plain values.
        ignored: classes of other programs' objects in the file, which were not created.
    """

    path: Path
    state: Mapping[str, Tensor]
    meta: Mapping[str, Any]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assumption:
    """An assumption about something that the file does not say.

    Args:
        text: shown to the user, with the option that changes it.
        keys: parts of the recipe that it concerns; setting one of them replaces the assumption.
        required: nothing speaks for it and it decides the outputs, so a setting has to replace it.
    """

    text: str
    keys: tuple[str, ...]
    required: bool = False

    def holds(self, settings: Sequence[str]) -> bool:
        """Whether none of the settings, each ``key=value``, replaces it.

        >>> Assumption("no scale", ("model.block",)).holds(["model.block.scaled=true"])
        False
        """
        given = [f"{setting.partition('=')[0].strip()}." for setting in settings]
        assumed = [f"{key}." for key in self.keys]
        return not any(key.startswith(part) or part.startswith(key) for key in given for part in assumed)


@dataclass(frozen=True)
class Converted:
    """A model of this package.

    Args:
        state: its tensors, by our names.
        recipe: describes the network.
        classes: its classes.
        notes: messages for the user.
        assumed: what could not be read from the file.
        unused: names of the file's tensors that have no place in the model, except those known to be unnecessary.
        names: prefixes of the original names of its tensors, and ours.
        family: the name of its family; set by `dnlnet.convert.convert`.
    """

    state: dict[str, Tensor]
    recipe: Recipe
    classes: Classes
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    unused: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    family: str = ""

    def messages(self, settings: Sequence[str] = ()) -> tuple[str, ...]:
        """All messages for the user: the notes, and the assumptions that no setting replaced."""
        return (*self.notes, *(row.text for row in self.assumed if row.holds(settings)))


@dataclass(frozen=True)
class Family:
    """The checkpoints of one code base.

    Args:
        name: shown to users.
        source: what can be converted, in one line.
        matches: whether a state dict belongs to the family, judged by its names alone.
        convert: converts a checkpoint; raises ValueError if this package has no such network.
        inside: prefixes of the names of all layers that the outputs depend on.
        config: key of the configuration's text in `ForeignCheckpoint.meta`; None if it is not text.
    """

    name: str
    source: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[ForeignCheckpoint], Converted]
    inside: tuple[str, ...]
    config: str | None = None
