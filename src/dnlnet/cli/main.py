"""The command's entry: its subcommands, and one way to report an error."""

import sys
from typing import Annotated

import typer

from dnlnet import __version__
from dnlnet.cli.attend import attend
from dnlnet.cli.bench import bench
from dnlnet.cli.complexity import complexity
from dnlnet.cli.consistency import consistency
from dnlnet.cli.convert import convert
from dnlnet.cli.data import data
from dnlnet.cli.demo import demo
from dnlnet.cli.evaluate import evaluate
from dnlnet.cli.explore import explore
from dnlnet.cli.info import info
from dnlnet.cli.predict import predict
from dnlnet.cli.recipes import recipes
from dnlnet.cli.train import train
from dnlnet.cli.verify import verify

app = typer.Typer(
    name="dnlnet",
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
app.command()(consistency)
app.command()(info)
app.command()(convert)
app.command()(verify)
app.command()(complexity)
app.add_typer(recipes, name="recipes")
app.add_typer(data, name="data")
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dnlnet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; bad input ends with one line and exit code 2, a traceback only with --debug."""
    try:
        app()
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if "--debug" in sys.argv:
            raise
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(f"{error}  (--debug shows where)", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)
