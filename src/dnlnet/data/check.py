"""Reading every file of a data set once, and what is said about it: the parts that all systems share."""

# K classes

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dnlnet.data.problems import BadFileError, Problem
from dnlnet.names import printable

Size = tuple[int, int]  # width, height, as Pillow has them
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Contents:
    """What the table of a report shows.

    Args:
        title: how much there is.
        amounts: of each class, for its bar.
        columns: cells of each class, by the column's name.
        caption: below the table.
        lines: after it.
    """

    title: str
    amounts: Sequence[float]
    columns: Mapping[str, Sequence[str]]
    caption: str
    lines: Sequence[str] = ()


class Report(Protocol):
    """What a split holds, and all that is wrong with it."""

    @property
    def name(self) -> str:
        """Of the data set and the split."""
        ...

    @property
    def class_names(self) -> Sequence[str]:
        """The K names."""
        ...

    @property
    def sizes(self) -> Mapping[Size, int]:
        """(width, height) -> how many, the most frequent first."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """All that is wrong, each with its path."""
        ...

    def contents(self) -> Contents:
        """What the table shows."""
        ...

    def to_json(self) -> dict[str, object]:
        """The report in types that JSON has."""
        ...


def count_of(number: int, noun: str) -> str:
    """A number of things.

    >>> count_of(1, "image"), count_of(2, "image")
    ('1 image', '2 images')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts_or_none(counts: Sequence[int]) -> list[str]:
    """Counts as cells of a table, in which a zero stands out.

    >>> counts_or_none([3, 0])
    ['3', 'none']
    """
    return [str(count) if count else "none" for count in counts]


def sizes_and_problems(
    sizes: Mapping[Size, int], problems: Sequence[Problem], of: str = "images"
) -> dict[str, object]:
    """The part of a report that is the same for all kinds of data, in types that JSON has.

    >>> sizes_and_problems({(4, 2): 1}, [])
    {'sizes': [{'width': 4, 'height': 2, 'images': 1}], 'problems': []}
    """
    return {
        "sizes": [{"width": width, "height": height, of: count} for (width, height), count in sizes.items()],
        "problems": [{"path": str(problem.path), "text": problem.text} for problem in problems],
    }


def most_frequent_first(sizes: Counter[Size]) -> dict[Size, int]:
    """Sizes with their counts.

    >>> most_frequent_first(Counter([(2, 1), (1, 2), (1, 2)]))
    {(1, 2): 2, (2, 1): 1}
    """
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def read_all(
    read: Callable[[Item], Found], items: Iterable[Item], progress: Callable[[], None] | None = None
) -> Iterator[Found]:
    """What reading each item found, in their order, several at a time.

    >>> list(read_all(str.upper, "ab"))
    ['A', 'B']
    """
    # Pillow and PyAV decode without the interpreter's lock, so that threads are enough. Each turns off warnings while
    # it reads, which is a setting of all of them: it is put back here, after the last.
    with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for found in pool.map(read, items):
            yield found
            if progress is not None:
                progress()


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """A bad file in the block becomes a problem of the list."""
    try:
        yield
    except BadFileError as error:
        problems.append(error.problem)


_FEW = 3  # problems of a kind that are listed one by one, and files of one that are named
_PLACE = re.compile(r" at row \d+, column \d+")
_IGNORABLE = re.compile(r"label (\d+); expected .* or \d+ \(ignored\)")  # of one's own masks


def grouped(problems: Sequence[Problem]) -> list[str]:
    """Problems in lines, those of many files with the same fault in one.

    >>> from pathlib import Path
    >>> text = "label 11 at row {n}, column 0; expected 0..10 or 255 (ignored)"
    >>> many = [Problem(Path(f"{n}.png"), text.format(n=n)) for n in range(13)]
    >>> both = grouped([*many, Problem(Path("a.png"), "is empty")])
    >>> both[0].split("? ")  # doctest: +NORMALIZE_WHITESPACE
    ['13 masks hold 11, where 0..10 or 255 (ignored) is expected: is that ignore: 11 in classes.yaml',
     '.: 0.png, 1.png, 2.png and 10 more']
    >>> both[1]
    'a.png: is empty'
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(_PLACE.sub("", problem.text), []).append(problem)
    return [
        line
        for text, same in kinds.items()
        for line in ([_together(text, same)] if len(same) > _FEW else map(str, same))
    ]


def _together(text: str, same: Sequence[Problem]) -> str:
    """One line for many files."""
    names = ", ".join(printable(problem.path.name) for problem in same[:_FEW])
    files = f"{printable(same[0].path.parent)}: {names} and {len(same) - _FEW} more"
    if ignorable := _IGNORABLE.fullmatch(text):
        expected = text.partition("expected ")[2]
        label = ignorable[1]
        return (
            f"{len(same)} masks hold {label}, where {expected} is expected: is that ignore: {label} in classes.yaml? "
            f"{files}"
        )
    return f"{len(same)} files: {text}; {files}"
