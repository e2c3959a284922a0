"""Help that reads well at any width: paragraphs wrap by themselves, and every character is shown."""

from typing import Any

import typer
from typer.core import TyperGroup


class PlainHelp(TyperGroup):
    """The command with all its subcommands, whose help texts are plain text and not markup."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _tidy(self)


def _tidy(command: Any) -> None:
    command.help = _plain(command.help)
    for parameter in command.params:
        _tidy_parameter(parameter)
    for part in getattr(command, "commands", {}).values():
        _tidy(part)


def _tidy_parameter(parameter: Any) -> None:
    """Leave the width to the text: a flag needs no type, and an error names the bounds of a number."""
    parameter.help = _plain(getattr(parameter, "help", None))
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif getattr(parameter, "min", None) is not None or getattr(parameter, "max", None) is not None:
        parameter.min = parameter.max = None  # of the help alone; values are still checked
        parameter.metavar = parameter.metavar or "N"


def _plain(text: str | None) -> str | None:
    r"""A help text without the line breaks of its source, and with brackets that are not taken for markup.

    >>> _plain("Needs\ngradio: dnlnet[demo].\n\nExample: dnlnet explore street")
    'Needs gradio: dnlnet\\[demo].\n\nExample: dnlnet explore street'
    """
    if text is None:
        return None
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(paragraphs).replace("[", r"\[")


def show_version(wanted: bool = True) -> None:
    """Print the version, and end the command."""
    from dnlnet import __version__

    if wanted:
        typer.echo(f"dnlnet {__version__}")
        raise typer.Exit


def version() -> None:
    """Print the version.

    Example: dnlnet version
    """
    show_version()
