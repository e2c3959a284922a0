"""Reports on the files of a data set, for all tasks."""

# K classes

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dnlnet.data.problems import BadFileError, Problem
from dnlnet.names import printable
from dnlnet.progress import SILENT, Progress

WidthHeight = tuple[int, int]  # Pillow's order
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Contents:
    """Table of a report.

    Args:
        title: Title with the number of files.
        amounts: Length of each class's bar.
        columns: Cells of each class, by column name.
        caption: Caption below the table.
        lines: Lines after the table.
    """

    title: str
    amounts: Sequence[float]
    columns: Mapping[str, Sequence[str]]
    caption: str
    lines: Sequence[str] = ()


class Report(Protocol):
    """Report on a split: its contents and problems."""

    @property
    def name(self) -> str:
        """Name of the data set and the split."""
        ...

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the K classes."""
        ...

    @property
    def sizes(self) -> Mapping[WidthHeight, int]:
        """Number of files by (width, height), the most frequent first."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Problems, each with its path."""
        ...

    def contents(self) -> Contents:
        """Return the table of the report."""
        ...

    def to_json(self) -> dict[str, object]:
        """Return the report in JSON types."""
        ...


def count_of(number: int, noun: str) -> str:
    """Format a number with a noun.

    >>> count_of(1, "image"), count_of(2, "image")
    ('1 image', '2 images')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts_or_none(counts: Sequence[int]) -> list[str]:
    """Format counts as table cells, with zero as `none`.

    >>> counts_or_none([3, 0])
    ['3', 'none']
    """
    return [str(count) if count else "none" for count in counts]


def sizes_and_problems(
    sizes: Mapping[WidthHeight, int], problems: Sequence[Problem], of: str = "images"
) -> dict[str, object]:
    """Return the part of a report that all kinds of data share, in JSON types.

    >>> sizes_and_problems({(4, 2): 1}, [])
    {'sizes': [{'width': 4, 'height': 2, 'images': 1}], 'problems': []}
    """
    return {
        "sizes": [{"width": width, "height": height, of: count} for (width, height), count in sizes.items()],
        "problems": [{"path": str(problem.path), "text": problem.text} for problem in problems],
    }


def most_frequent_first(sizes: Counter[WidthHeight]) -> dict[WidthHeight, int]:
    """Sort sizes by count, the most frequent first.

    >>> most_frequent_first(Counter([(2, 1), (1, 2), (1, 2)]))
    {(1, 2): 2, (2, 1): 1}
    """
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def read_all(
    read: Callable[[Item], Found], items: Sequence[Item], name: str = "files", progress: Progress = SILENT
) -> Iterator[Found]:
    """Yield the result of reading each item, in order, with several threads.

    >>> list(read_all(str.upper, "ab"))
    ['A', 'B']
    """
    # Pillow and PyAV release the interpreter's lock, so threads suffice. Readers turn off warnings for all threads at
    # once, so the setting is restored here after the last one.
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(max_workers=os.cpu_count()) as pool,
        progress.track(name, len(items)) as done,
    ):
        for found in pool.map(read, items):
            yield found
            done.advance()


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """Append the problem of a bad file to a list instead of raising it."""
    try:
        yield
    except BadFileError as error:
        problems.append(error.problem)


_LISTED = 3  # similar problems listed separately; above this number, files named on their common line
_PLACE = re.compile(r" at row \d+, column \d+")


def grouped(problems: Sequence[Problem]) -> list[str]:
    """Format problems as lines. A problem that many files share takes one line.

    >>> from pathlib import Path
    >>> text = "label 11 at row {n}, column 0; expected 0..10 or 255 (ignored)"
    >>> many = [Problem(Path(f"{n}.png"), text.format(n=n)) for n in range(13)]
    >>> grouped([*many, Problem(Path("a.png"), "is empty")])  # doctest: +NORMALIZE_WHITESPACE
    ['13 files: label 11; expected 0..10 or 255 (ignored); .: 0.png, 1.png, 2.png and 10 more',
     'a.png: is empty']
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(_PLACE.sub("", problem.text), []).append(problem)
    return [
        line
        for text, same in kinds.items()
        for line in ([_shared_problem_line(text, same)] if len(same) > _LISTED else map(str, same))
    ]


def _shared_problem_line(text: str, same: Sequence[Problem]) -> str:
    """Format a problem that many files share."""
    names = ", ".join(printable(problem.path.name) for problem in same[:_LISTED])
    files = f"{printable(same[0].path.parent)}: {names} and {len(same) - _LISTED} more"
    return f"{len(same)} files: {text}; {files}"
