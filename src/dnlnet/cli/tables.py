"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
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
    widths = [
        _least_width([name, *(str(row[name]) for row in rows)], number == 0) for number, name in enumerate(rows[0])
    ]
    lines = sum(widths) + 3 * len(widths) + 1 <= console.width
    if sum(widths) + 2 * len(widths) - 2 > console.width:
        widths[1:] = [1] * (len(widths) - 1)  # no room for whole words
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
        table.add_column(Text(name), justify=justify, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(Text(str(value), style=_STYLES.get(str(value), "")) for value in row.values()))
    console.print(table)


_SHORT = 14  # characters of a cell that is not broken
_STYLES = {"holds": "green", "does not hold": "red"}


def _least_width(cells: Sequence[str], whole: bool) -> int:
    """Of a column, so that no word of it is broken; whole cells where they are short or asked for.

    >>> _least_width(["score", "box AP 38.8, mask AP 35.1"], False), _least_width(["recipe", "a-b c"], True)
    (5, 6)
    """
    parts = (cell.splitlines() if whole or len(cell) <= _SHORT else cell.split() for cell in cells)
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
