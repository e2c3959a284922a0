"""`dnlnet train`: train a recipe, and go on where it stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.numbers import LARGEST_SEED, MOST_THREADS

if TYPE_CHECKING:
    from rich.progress import TaskID

    from dnlnet.engine.train import Outcome
    from dnlnet.engine.train import Progress as TrainingProgress

_LINES_IN_A_FILE = 50  # a bar that moves needs a terminal


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name of: dnlnet recipes list.")],
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder of the run; the same one goes on where it stopped.")
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the recipe; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything random.")] = 0,
    workers: Annotated[int, typer.Option(min=0, max=MOST_THREADS, help="Processes that read data.")] = 1,
    unpack: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep decoded pictures here, to read windows of.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep features of a frozen backbone here, for several runs to share."),
    ] = None,
    skip_nonfinite: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="Iterations with a non-finite loss to leave out.")
    ] = 0,
) -> None:
    """Train a recipe; stopped or killed, the same command goes on from the last checkpoint.

    The folder of the run gets run.yaml, log.jsonl, checkpoints, best.safetensors, last.safetensors, report.md and
    event files for TensorBoard. Under torchrun, the same command trains in several processes.

    Example: dnlnet train camvid-mbv2-dnl --data ~/camvid --out runs/camvid --set model.weights=mobilenet_v2.pth
    """
    from dnlnet.engine import distributed
    from dnlnet.recipes.override import override
    from dnlnet.runs.report import write_report
    from dnlnet.runs.train import train as train_recipe
    from dnlnet.systems import find_recipe, system_of

    chosen = override(find_recipe(recipe), settings or [])
    with _Bar(chosen.schedule.batch, system_of(chosen).unit) as bar:
        if data is not None and distributed.is_main():
            bar.say(f"opening {chosen.data.name} in {data}")  # which may take a minute, if its lists are long
        outcome = train_recipe(
            chosen,
            data,
            out,
            seed=seed,
            workers=workers,
            unpacked=unpack,
            cache=cache,
            skip_nonfinite=skip_nonfinite,
            progress=bar.show,
            preparing=bar.prepare,
            report=bar.say,
        )
    if not distributed.is_main():
        return
    if not outcome.finished:
        raise stopped(outcome)
    typer.echo(f"report: {write_report(out)}")
    models = [path for path in (out / "best.safetensors", out / "last.safetensors") if path.exists()]
    typer.echo(f"models: {', '.join(map(str, models))}")


def stopped(outcome: "Outcome") -> typer.Exit:
    """Say how a training that a signal stopped goes on; how the command ends then."""
    typer.echo(f"stopped after iteration {outcome.iteration}, which is saved; the same command goes on from there")
    return typer.Exit(128 + (outcome.signal or 0))


class _Bar:
    """Progress of a run on the terminal: loss, learning rate, images or clips per second, time left."""

    def __init__(self, batch: int, unit: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from dnlnet.cli.progress import main_process_console

        self.batch, self.unit = batch, unit
        self.console = main_process_console()
        columns = TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")
        self.progress = Progress(*columns, TimeRemainingColumn(), console=self.console)
        self.preparing: TaskID | None = None
        self.task = self.progress.add_task("", total=None, state="", visible=False)

    def __enter__(self) -> "_Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def prepare(self, done: int, total: int) -> None:
        """Features are computed."""
        if self.preparing is None:
            self.preparing = self.progress.add_task("", total=total, state="features")
        self.progress.update(self.preparing, completed=done, total=total, state="features", visible=done < total)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def show(self, now: "TrainingProgress") -> None:
        if self.progress.tasks[0].total is None:  # a run that goes on starts with what it has
            self.progress.reset(self.task, total=now.iterations, completed=now.iteration - 1, visible=True)
        speed = (self.progress.tasks[0].speed or 0) * self.batch
        loss = sum(now.losses.values())
        state = f"loss {loss:.3f}  lr {now.lr:.4f}  {speed:.1f} {self.unit}/s"
        self.progress.update(self.task, completed=now.iteration, state=state)
        if not self.console.is_terminal and now.iteration % max(1, now.iterations // _LINES_IN_A_FILE) == 0:
            self.say(f"iteration {now.iteration} of {now.iterations}: {state}")
