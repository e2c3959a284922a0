"""Data set and classes of a segmentation checkpoint, from its metadata or the number of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dnlnet.conversion.names import number_classes
from dnlnet.data.classes import Classes, Colour, spread_colours
from dnlnet.segmentation.data.sets import DATA_SETS

_DATA_SETS: Mapping[int, str] = {19: "cityscapes", 150: "ade20k", 59: "pascal_context", 60: "pascal_context_60"}
_OWN = "folder"


def find_data(count: int, names: Any = None, palette: Any = None) -> tuple[str, Classes, str | None]:
    """Return our name of the data set, its classes, and a note about what is assumed.

    Known data sets keep our spelling, so that the model can be evaluated on them.

    Args:
        count: Number of classes.
        names: Names in the checkpoint, if any.
        palette: Colours in the checkpoint, if any.

    >>> find_data(19)[::2]
    ('cityscapes', 'the 19 classes are assumed to be those of cityscapes')
    >>> find_data(2, ("sea", "ship"))[1].names
    ('sea', 'ship')
    """
    said = tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) == count else None
    known = _DATA_SETS.get(count)
    classes = DATA_SETS[known].classes if known is not None else None
    if known is not None and classes is not None and (said is None or _same(said, classes.names)):
        return known, classes, None if said is not None else f"the {count} classes are assumed to be those of {known}"
    colours = _colours(palette, count)
    if said is not None:
        return _OWN, Classes(said, colours), None
    numbered, note = number_classes(count)
    return _OWN, replace(numbered, palette=colours), note


def _same(said: Sequence[str], ours: Sequence[str]) -> bool:
    """Return whether most names agree; code bases choose different synonyms."""
    return sum(a.strip().lower() == b.lower() for a, b in zip(said, ours, strict=True)) > len(ours) / 2


def _colours(palette: Any, count: int) -> tuple[Colour, ...]:
    try:
        colours = tuple((int(red), int(green), int(blue)) for red, green, blue in palette)
    except (TypeError, ValueError):
        return spread_colours(count)
    return colours if len(colours) == count else spread_colours(count)
