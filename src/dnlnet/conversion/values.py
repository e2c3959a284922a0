"""Values of other code bases' configurations, checked before they are used."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from dnlnet.backbones.pixels import Pixels


def nested(tree: Any, *keys: str) -> Mapping[str, Any]:
    """Return the mapping under nested keys; empty if there is none.

    >>> nested({"a": {"b": {"c": 1}}}, "a", "b"), nested({"a": 1}, "a", "b")
    ({'c': 1}, {})
    """
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def is_number(value: Any, *, positive: bool = False) -> bool:
    """Return whether a value is a number, and above 0 if `positive`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and (value > 0 or not positive)


def are_colours(values: Any, *, positive: bool = False) -> TypeGuard[Sequence[float]]:
    """Return whether a value is a sequence of three numbers."""
    sequence = isinstance(values, list | tuple) and len(values) == 3
    return sequence and all(is_number(value, positive=positive) for value in values)


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value is a whole number above 0."""
    return isinstance(value, int) and is_number(value, positive=True)


def are_counts(values: Any, length: int | None = None) -> TypeGuard[tuple[int, ...]]:
    """Return whether a value is a sequence of whole numbers above 0, of this length if one is given."""
    sequence = isinstance(values, list | tuple) and len(values) == (length or len(values)) > 0
    return sequence and all(map(is_count, values))


def pixels_of(mean: Sequence[float], std: Sequence[float], *, blue_first: bool, scale: float = 1.0) -> Pixels:
    """Return how pixels are normalised, from a mean and std in the order in which the network takes colours.

    >>> pixels_of((1, 2, 3), (4, 4, 4), blue_first=True).mean
    (3.0, 2.0, 1.0)
    """
    order = slice(None, None, -1 if blue_first else 1)
    means, stds = (tuple(float(x) * scale for x in numbers[order]) for numbers in (mean, std))
    return Pixels(means, stds, blue_first=blue_first)
