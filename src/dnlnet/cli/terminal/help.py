"""Help that reads well at any width: paragraphs wrap by themselves, and every character is shown."""

from pathlib import Path
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
    all_of_them = command.get_params

    def get_params(context: Any) -> list[Any]:
        """Also those that are added later: of help, and of completion."""
        found: list[Any] = all_of_them(context)
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found

    command.get_params = get_params
    for part in getattr(command, "commands", {}).values():
        _tidy(part)


def _tidy_parameter(parameter: Any) -> None:
    """Leave the width to the text: names say what a value is, not types, and errors say the bounds of a number."""
    parameter.help = _plain(getattr(parameter, "help", None))
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        parameter.display_type_rich = lambda ctx: ""
        parameter.get_usage_pieces = lambda ctx: [name if parameter.required else f"[{name}]"]
    elif getattr(parameter, "is_flag", False):
        return
    elif getattr(parameter, "min", None) is not None or getattr(parameter, "max", None) is not None:
        parameter.min = parameter.max = None  # of the help alone; values are still checked
        parameter.metavar = parameter.metavar or "N"
    elif parameter.metavar is None:
        parameter.metavar = _value_name(parameter)


def _value_name(option: Any) -> str:
    """What to call the value of an option: its choices, a file, or the option's own name."""
    kind = getattr(option, "type_descriptor", None)
    if kind is not None and kind.is_choice:
        return "|".join(choice.value for choice in kind.choices)
    return "FILE" if kind is not None and kind.annotation is Path else str(option.name).upper()


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
