"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Literal

from dnlnet.errors import unknown


def print_table(title: str, rows: Sequence[Mapping[str, object]], caption: str = "") -> None:
    """Rows as a table whose columns are the keys of the first row; cells are shown as they are, without markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titles = (
        Text(text, style=f"table.{kind}") if text else None for kind, text in (("title", title), ("caption", caption))
    )
    table = Table(title=next(titles), caption=next(titles), title_justify="left", caption_justify="left")
    for name, value in rows[0].items():
        narrow = max(len(str(row[name])) for row in rows) <= 14
        justify: Literal["left", "right"] = "right" if _is_number(value) else "left"
        table.add_column(Text(name), justify=justify, no_wrap=narrow, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value), style=_STYLES.get(str(value), "")) for value in row.values()))
    Console().print(table)


_STYLES = {"holds": "green", "does not hold": "red"}


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
