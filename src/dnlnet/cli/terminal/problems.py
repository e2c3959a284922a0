"""What commands over many files say of those that they could not use."""

from collections.abc import Sequence

import typer


def say(text: str) -> None:
    """A line on the error stream, in which names of files are text."""
    from dnlnet.data.names import printable

    typer.echo(printable(text), err=True)


def end_with(problems: Sequence[str], count: int) -> None:
    """List what could not be used of so many; the exit code is 1, or 2 if that was all."""
    for problem in problems:
        say(f"not done: {problem}")
    if problems:
        raise typer.Exit(2 if len(problems) == count else 1)
