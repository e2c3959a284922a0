"""What commands over many files say of those that they could not use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dnlnet.data.inputs import Inputs


def say(text: str) -> None:
    """A line on the error stream, in which names of files are text."""
    from dnlnet.data.names import printable

    typer.echo(printable(text), err=True)


def say_left_out(inputs: "Inputs") -> None:
    """What was found but is not looked at."""
    for text in inputs.left_out:
        say(f"left out: {text}")


def end_with(problems: Sequence[str], count: int) -> None:
    """List what could not be used of so many; the exit code is 1, or 2 if that was all."""
    for problem in problems:
        say(f"not done: {problem}")
    if problems:
        raise typer.Exit(2 if len(problems) == count else 1)
