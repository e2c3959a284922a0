"""Entry point of the command: its subcommands, and one way to report errors."""

import shlex
import sys
import warnings
from tempfile import NamedTemporaryFile
from traceback import format_exception
from typing import Annotated, Any

import typer

from dnlnet import __version__
from dnlnet.cli.commands.ablate import ablate
from dnlnet.cli.commands.attend import attend
from dnlnet.cli.commands.bench import bench
from dnlnet.cli.commands.complexity import complexity
from dnlnet.cli.commands.consistency import consistency
from dnlnet.cli.commands.convert import convert
from dnlnet.cli.commands.data import data
from dnlnet.cli.commands.demo import demo
from dnlnet.cli.commands.evaluate import evaluate
from dnlnet.cli.commands.explore import explore
from dnlnet.cli.commands.export import export
from dnlnet.cli.commands.info import info
from dnlnet.cli.commands.models import models
from dnlnet.cli.commands.predict import predict
from dnlnet.cli.commands.profile import profile
from dnlnet.cli.commands.recipes import recipes
from dnlnet.cli.commands.study import study
from dnlnet.cli.commands.train import train
from dnlnet.cli.commands.verify import verify
from dnlnet.errors import is_lost_connection, is_out_of_memory
from dnlnet.signals import StopSignal, exit_on_stop_signals, ignore_stop_signals

app = typer.Typer(
    name="dnlnet",
    help="Train disentangled non-local networks, use them, and look inside attention.",
    epilog="Start with: dnlnet demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # wraps paragraphs and keeps brackets
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS: dict[str, list[Any]] = {
    "Start here": [demo, models, predict, attend, train, evaluate],
    "Use a model": [info, convert, export],
    "Look inside attention": [explore, profile, consistency, ablate],
    "Train": [study, recipes, data],
    "Reproduce the paper": [complexity, verify, bench],
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, rich_help_panel=_panel)
        else:
            app.command("eval" if _command is evaluate else None, rich_help_panel=_panel)(_command)


def _show_version(wanted: bool = True) -> None:
    if wanted:
        typer.echo(f"dnlnet {__version__}")
        raise typer.Exit


@app.command("version", hidden=True)
def _version() -> None:
    """Print the version, like --version.

    Example: dnlnet version
    """
    _show_version()


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command. An error is reported in one sentence, and with a traceback only if --debug is given.

    Exit codes: 2 for bad usage or input, 70 for a bug in this package, 128 + n for Ctrl-C and other signals.
    """
    warnings.formatwarning = lambda message, *_: f"warning: {_as_text(message)}\n"
    try:
        with exit_on_stop_signals():
            app()
    except StopSignal:
        ignore_stop_signals()  # a second signal, such as SIGHUP from a closed terminal, would interrupt the clean-up
        typer.echo("stopped", err=True)
        raise
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(f"{_as_text(message)}{'  (--debug shows where)' if code == 70 else ''}", err=True)
        sys.exit(code)


def _as_text(message: object) -> str:
    """Escape control characters in each line of a message; they can come from names in files."""
    from dnlnet.names import printable

    return "\n".join(map(printable, str(message).split("\n")))


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code for an error."""
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return str(error), 2
    if is_out_of_memory(error):
        return "not enough memory; try smaller images, crops or batches, or fewer workers", 2
    if is_lost_connection(error):
        return "lost the connection to another process of this run; rerun the command to resume", 2
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"internal error, please report it: {what}; {_save_traceback(error)}", 70


def _save_traceback(error: Exception) -> str:
    """Save what a bug report needs, and return a clause that names the file."""
    try:
        with NamedTemporaryFile("w", prefix="dnlnet-error-", suffix=".txt", delete=False) as file:
            file.write(f"dnlnet {__version__}, Python {sys.version}\ndnlnet {shlex.join(sys.argv[1:])}\n\n")
            file.writelines(format_exception(error))
    except OSError as problem:
        return f"the traceback could not be saved ({problem.strerror})"
    return f"the traceback is in {file.name}"
