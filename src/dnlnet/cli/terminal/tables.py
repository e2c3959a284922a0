"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal

from dnlnet.errors import unknown


def print_table(title: str, rows: Sequence[Mapping[str, object]], caption: str = "") -> None:
    """Rows as a table whose columns are the keys of the first row; cells are shown as they are, without markup.

    The first column has names, which are never broken over lines; long cells of others are, at spaces. A table that
    is too wide for the terminal goes without the lines between its columns.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    titles = (
        Text(text, style=f"table.{kind}") if text else None for kind, text in (("title", title), ("caption", caption))
    )
    columns = [[name, *(str(row[name]) for row in rows)] for name in rows[0]]
    widths = _fitting_widths(columns, console.width - 2 * len(columns) + 2)
    lines = sum(widths) + 3 * len(widths) + 1 <= console.width
    table = Table(
        title=next(titles),
        caption=next(titles),
        title_justify="left",
        caption_justify="left",
        box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD,
        padding=(0, 1) if lines else (0, 1, 0, 0),
        show_edge=lines,
        pad_edge=lines,
    )
    for (name, value), width in zip(rows[0].items(), widths, strict=True):
        justify: Literal["left", "right"] = "right" if _is_number(value) else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(str(value), style=_STYLES.get(str(value), "")) for value in row.values()))
    console.print(table)


_SHORT = 14  # characters of a cell that is not broken, if there is room
_STYLES = {"holds": "green", "does not hold": "red"}


def _fitting_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Of columns, each a heading and cells, that have so much room together.

    Names, in the first column, are whole; of the others first the short cells, then no more than words, then nothing.
    What is left goes to the columns that lack least, cells before headings, so that as many as can be are whole.

    >>> columns = [["recipe", "a-b"], ["box AP", "9.8"], ["what it is", "a long description", "none"]]
    >>> _fitting_widths(columns, 40), _fitting_widths(columns, 26), _fitting_widths(columns, 20)
    ([6, 6, 18], [6, 3, 17], [6, 3, 11])
    """
    headings, bodies = [column[:1] for column in columns], [column[1:] for column in columns]
    names = _least_width(bodies[0])
    for unbroken in (_SHORT, 0):
        widths = [names, *(_least_width(cells, unbroken) for cells in bodies[1:])]
        widths = [max(width, _least_width(heading, 0)) for width, heading in zip(widths, headings, strict=True)]
        if sum(widths) <= room:
            break
    else:
        widths[1:] = [1] * (len(widths) - 1)
    for parts in (bodies, headings):
        lacks = [_least_width(cells) - width for cells, width in zip(parts, widths, strict=True)]
        for column in sorted(range(len(widths)), key=lacks.__getitem__):
            widths[column] += max(0, min(lacks[column], room - sum(widths)))
    return widths


def _least_width(cells: Sequence[str], unbroken: float = inf) -> int:
    """Of a column, so that no word of it is broken, nor a cell of at most so many characters.

    >>> cells = ["score", "AP 9.8", "box AP 38.8, mask AP 35.1"]
    >>> _least_width(cells), _least_width(cells, 14), _least_width(cells, 0)
    (25, 6, 5)
    """
    parts = (cell.splitlines() if len(cell) <= unbroken else cell.split() for cell in cells)
    return max((len(part) for some in parts for part in some), default=0)


def _is_number(value: object) -> bool:
    return str(value).replace(",", "").lstrip("-")[:1].isdigit()


def choose(kind: str, text: str, known: Mapping[str, object]) -> list[str]:
    """The known names in a comma-separated list; `all` is all of them.

    >>> choose("size", "large,small", {"small": 1, "large": 2})
    ['large', 'small']
    """
    names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return names
