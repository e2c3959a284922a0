"""The command's entry: its subcommands, and one way to report an error."""

import shlex
import sys
import warnings
from tempfile import NamedTemporaryFile
from traceback import format_exception
from typing import Annotated

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
from dnlnet.cli.terminal.help import PlainHelp, show_version, version
from dnlnet.errors import is_lost_connection, is_out_of_memory
from dnlnet.signals import StopSignal, exit_on_stop_signals, ignore_stop_signals

app = typer.Typer(
    name="dnlnet",
    cls=PlainHelp,
    help="Disentangled non-local networks: train, measure and look inside attention.",
    epilog="Start with: dnlnet demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(train)
app.command("eval")(evaluate)
app.command()(predict)
app.command()(attend)
app.command()(explore)
app.command()(profile)
app.command()(consistency)
app.command()(ablate)
app.command()(study)
app.command()(models)
app.command()(export)
app.command()(info)
app.command()(convert)
app.command()(verify)
app.command()(complexity)
app.command()(version)
app.add_typer(recipes, name="recipes")
app.add_typer(data, name="data")
app.add_typer(bench, name="bench")


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; every error ends with a sentence and an exit code, a traceback only with --debug.

    Exit codes: 2 for bad usage or input, 70 for a defect of this package, 128 + n for Ctrl-C and other signals.
    """
    warnings.formatwarning = lambda message, *_: f"warning: {_as_text(message)}\n"
    try:
        with exit_on_stop_signals():
            app()
    except StopSignal:
        ignore_stop_signals()  # another one, as of a closed terminal, would interrupt the rest of the cleaning up
        typer.echo("stopped", err=True)
        raise
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(f"{_as_text(message)}  (--debug shows where)", err=True)
        sys.exit(code)


def _as_text(message: object) -> str:
    """Return the lines of a message without anything that a terminal would obey: names in it come from files."""
    from dnlnet.data.names import printable

    return "\n".join(map(printable, str(message).split("\n")))


def _explain(error: Exception) -> tuple[str, int]:
    """What to say about an error, and the exit code."""
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return str(error), 2
    if is_out_of_memory(error):
        return "there is not enough memory for this; try smaller images, crops or batches, or fewer workers", 2
    if is_lost_connection(error):
        return "lost the connection to another process of this run; the same command resumes it when all are back", 2
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"internal error, please report it: {what}; {_save_traceback(error)}", 70


def _save_traceback(error: Exception) -> str:
    """Write down what a report needs; where that is, in words."""
    try:
        with NamedTemporaryFile("w", prefix="dnlnet-error-", suffix=".txt", delete=False) as file:
            file.write(f"dnlnet {__version__}, Python {sys.version}\ndnlnet {shlex.join(sys.argv[1:])}\n\n")
            file.writelines(format_exception(error))
    except OSError as problem:
        return f"the traceback could not be saved ({problem.strerror})"
    return f"the traceback is in {file.name}"
