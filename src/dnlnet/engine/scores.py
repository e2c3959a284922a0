"""Results of an evaluation, to print and write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BAR = 24  # characters of a full bar


@dataclass(frozen=True)
class Table:
    """Table for the terminal: rows of cells by column, and a caption below."""

    title: str
    rows: Sequence[Mapping[str, object]]
    caption: str = ""


@dataclass(frozen=True)
class Scores:
    """Scores of a model on a split.

    Args:
        values: Scores by name, None if there is nothing to score. The first one ranks models.
        tables: Tables for the terminal. The last one lists the classes, under the title of the model.
        content: All results, in JSON types.
        notes: Sentences about samples that were skipped, or counted despite a problem.
        files: Writers of further files, by the name of their option.
    """

    values: Mapping[str, float | None]
    tables: Sequence[Table]
    content: Mapping[str, Any]
    notes: Sequence[str] = ()
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def class_bars(score: str, by_class: Mapping[str, float | None]) -> list[dict[str, object]]:
    """Return a row for each class, with its score and a bar.

    >>> class_bars("IoU", {"road": 0.5, "sky": None})
    [{'class': 'road', 'IoU': '0.500', '': '████████████'}, {'class': 'sky', 'IoU': '-', '': ''}]
    """
    return [
        {"class": name, score: number(value), "": "█" * round(_BAR * (value or 0))}
        for name, value in by_class.items()
    ]


def number(value: float | None) -> str:
    """Format a score with three decimals, or as a dash if there is none.

    >>> number(0.5), number(None)
    ('0.500', '-')
    """
    return "-" if value is None else f"{value:.3f}"
