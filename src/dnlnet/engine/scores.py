"""What an evaluation found, ready to be printed and written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BAR = 24  # characters of a full bar


@dataclass(frozen=True)
class Table:
    """A table for the terminal: rows of cells by column, and a line below."""

    title: str
    rows: Sequence[Mapping[str, object]]
    caption: str = ""


@dataclass(frozen=True)
class Scores:
    """The scores of a model on a split.

    Args:
        values: the numbers by name, None where there is nothing to score; the first says which of two models is
            better.
        tables: the same for people, the last about all classes together, whose title is that of the model.
        content: everything, in types that JSON has.
        notes: what was not counted, or is wrong although it was, one sentence each.
        files: what else can be written, by the name of the option that asks for it.
    """

    values: Mapping[str, float | None]
    tables: Sequence[Table]
    content: Mapping[str, Any]
    notes: Sequence[str] = ()
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def class_bars(score: str, by_class: Mapping[str, float | None]) -> list[dict[str, object]]:
    """A row for each class, with its number and a bar.

    >>> class_bars("IoU", {"road": 0.5, "sky": None})
    [{'class': 'road', 'IoU': '0.500', '': '████████████'}, {'class': 'sky', 'IoU': '-', '': ''}]
    """
    return [
        {"class": name, score: number(value), "": "█" * round(_BAR * (value or 0))}
        for name, value in by_class.items()
    ]


def number(value: float | None) -> str:
    """A score with three digits, or a dash where there is none.

    >>> number(0.5), number(None)
    ('0.500', '-')
    """
    return "-" if value is None else f"{value:.3f}"
