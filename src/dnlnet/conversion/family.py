"""Families of checkpoints, one per code base, and their converted form."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.recipes.recipe import Recipe


@dataclass(frozen=True)
class ForeignCheckpoint:
    """Checkpoint of another code base.

    Args:
        path: The file, whose name may contain settings.
        state: Tensors by their original names, without the prefixes of wrappers.
        meta: The rest of the file, as plain values.
        ignored: Classes of objects in the file that were not created.
    """

    path: Path
    state: Mapping[str, Tensor]
    meta: Mapping[str, Any]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assumption:
    """Assumption about a setting that the file does not contain.

    Args:
        text: Message for the user, with the option that changes the setting.
        keys: Parts of the recipe; setting one of them replaces the assumption.
        required: True if the outputs depend on it and nothing suggests its value, so a setting must replace it.
    """

    text: str
    keys: tuple[str, ...]
    required: bool = False

    def holds(self, settings: Sequence[str]) -> bool:
        """Return whether none of the settings, each ``key=value``, replaces it.

        >>> Assumption("no scale", ("model.block",)).holds(["model.block.scaled=true"])
        False
        """
        given = [f"{setting.partition('=')[0].strip()}." for setting in settings]
        assumed = [f"{key}." for key in self.keys]
        return not any(key.startswith(part) or part.startswith(key) for key in given for part in assumed)


@dataclass(frozen=True)
class Converted:
    """Converted checkpoint.

    Args:
        state: Tensors by our names.
        recipe: Recipe of the network.
        classes: Classes of the model.
        notes: Messages for the user.
        assumed: Assumptions about settings that the file does not contain.
        unused: Names of the file's tensors without a place in the model, except those known to be unnecessary.
        names: Table from prefixes of the original names to ours.
        family: Name of its family; set by `dnlnet.convert`.
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
        """Return the notes, and the assumptions that no setting replaces."""
        return (*self.notes, *(row.text for row in self.assumed if row.holds(settings)))


@dataclass(frozen=True)
class Family:
    """Checkpoints of one code base.

    Args:
        name: Name of the code base.
        source: Its supported networks, in one line.
        matches: Return whether names of tensors are those of the family.
        convert: Convert a checkpoint; raises ValueError if this package has no such network.
        inside: Prefixes of the names of all layers that the outputs depend on.
        config: Key of the configuration's text in `ForeignCheckpoint.meta`; None if it is not text.
    """

    name: str
    source: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[ForeignCheckpoint], Converted]
    inside: tuple[str, ...]
    config: str | None = None
