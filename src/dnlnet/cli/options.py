"""Arguments that several commands take, and options that a user gave."""

from typing import Annotated, Any

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model file, a run folder, or a name: one in the box, such as street, or on the hub."
    ),
]


def given(**options: Any) -> dict[str, Any]:
    """Those of the options that are not None.

    >>> given(window=None, flip=False)
    {'flip': False}
    """
    return {name: value for name, value in options.items() if value is not None}
