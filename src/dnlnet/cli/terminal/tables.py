"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Literal

_SHORT = 14  # longest cell of a column that is broken only if there is no room
_TEXT = 30  # width that leaves enough room for a column of longer cells
_STYLES = {"holds": "green", "does not hold": "red"}


def print_table(title: str, rows: Sequence[Mapping[str, object]], caption: str = "") -> None:
    """Print rows as a table whose columns are the keys of the first row.

    Names in the first column are never broken, and short cells only if there is no room. A table that is too wide
    for the terminal breaks its headings at spaces and drops the lines between columns.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = {name: max(len(line) for row in rows for line in str(row[name]).split("\n")) for name in rows[0]}
    for short in (_SHORT, 0):
        whole = {name: not number or widths[name] <= short for number, name in enumerate(widths)}
        if sum(width + 2 for name, width in widths.items() if whole[name]) <= console.width:
            break
    needed = (max(len(name), width if whole[name] else min(width, _TEXT)) for name, width in widths.items())
    lines = sum(needed) + 3 * len(widths) + 1 <= console.width
    table = Table(
        title=Text(title, style="table.title"),
        caption=Text(caption, style="table.caption") if caption else None,
        title_justify="left",
        caption_justify="left",
        box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD,
        padding=(0, 1) if lines else (0, 1, 0, 0),
        show_edge=lines,
        pad_edge=lines,
    )
    for name, value in rows[0].items():
        words = wrap(name, max(widths[name], *map(len, name.split()), 1), break_on_hyphens=False)
        justify: Literal["left", "right"] = "right" if _is_number(value) else "left"
        heading = Text(name if lines else "\n".join(words))
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=whole[name])
    for row in rows:
        table.add_row(*(Text(str(value), style=_STYLES.get(str(value), "")) for value in row.values()))
    console.print(table)


def number(value: float | None, form: str) -> str:
    """Format a number of a table, or return a dash if there is none.

    >>> number(0.5, ".2f"), number(None, ".2f")
    ('0.50', '-')
    """
    return "-" if value is None else format(value, form)


def _is_number(value: object) -> bool:
    return str(value).replace(",", "").lstrip("-")[:1].isdigit()
