"""`dnlnet train`: train a recipe, and resume it where it stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_setting
from dnlnet.cli.terminal.numbers import LARGEST_SEED, MOST_THREADS, finite

if TYPE_CHECKING:
    from dnlnet.engine.train import Outcome


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A name of: dnlnet recipes list. Default: a small one that suits the folder of --data.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder of the run; with that of a stopped one, training resumes.")
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set, or of your own.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Weights that the backbone starts with: a file, or none for random ones."),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000_000, help="How many; warm-up and further rounds change in proportion."),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=65_536, help="Images or clips per iteration.")] = None,
    lr: Annotated[
        float | None, typer.Option(min=0, max=100, metavar="RATE", callback=finite, help="The learning rate.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda:1", help="Default: a graphics card, if there is one.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace any value of the recipe; may be repeated.",
            autocompletion=complete_setting,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")] = 0,
    workers: Annotated[int, typer.Option(min=0, max=MOST_THREADS, help="Processes that read data.")] = 1,
    unpack: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep decoded pictures here, and read only windows of them.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep features of a frozen backbone here, for several runs to share."),
    ] = None,
    skip_nonfinite: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="How many iterations with a non-finite loss may be skipped.")
    ] = 0,
) -> None:
    """Train a recipe, or your own folder; stopped or killed, the same command resumes from the last checkpoint.

    Without a recipe, a small one is chosen that suits the folder of the data: images with masks and classes.yaml,
    COCO's JSON, or folders of videos by class. The folder of the run gets run.yaml, log.jsonl, checkpoints,
    best.safetensors, last.safetensors, report.md and event files for TensorBoard. Under torchrun, the same command
    trains in several processes.

    Example: dnlnet train --data ~/my_pictures --out runs/mine

    Example: dnlnet train camvid-mbv2-dnl --data ~/camvid --out runs/camvid --iterations 400 --set optim.momentum=0.8
    """
    from dnlnet.cli.terminal.options import given
    from dnlnet.recipes.override import override, shorthands
    from dnlnet.registry import find_recipe
    from dnlnet.runs.choose import choose_recipe, require_ready

    if recipe is None and data is None:
        raise ValueError("give a RECIPE, a name of dnlnet recipes list, or --data DIR, for which one is chosen")
    base, why = choose_recipe(data) if recipe is None and data is not None else (find_recipe(recipe or ""), None)
    short = shorthands(base, **given(weights=weights, iterations=iterations, batch=batch, lr=lr))
    chosen = override(base, [*short, *(settings or [])])
    require_ready(chosen, data, out)

    from dnlnet.engine import distributed
    from dnlnet.progress import Bars
    from dnlnet.runs.train import train as train_recipe

    progress = Bars()
    if why is not None:
        progress.say(why)
    if data is not None:
        progress.say(f"opening {chosen.data.name} in {data}")  # which may take a minute, if its lists are long
    outcome = train_recipe(
        chosen,
        data,
        out,
        seed=seed,
        workers=workers,
        unpacked=unpack,
        cache=cache,
        skip_nonfinite=skip_nonfinite,
        device=device,
        progress=progress,
    )
    if not distributed.is_main():
        return
    if not outcome.finished:
        raise stopped(outcome)

    from dnlnet.runs.report import write_report  # and with it matplotlib, which the other processes do without

    typer.echo(f"report: {write_report(out)}")
    models = [path for path in (out / "best.safetensors", out / "last.safetensors") if path.exists()]
    typer.echo(f"models: {', '.join(map(str, models))}")


def stopped(outcome: "Outcome") -> typer.Exit:
    """Say how a training that a signal stopped goes on; how the command ends then."""
    typer.echo(f"stopped after iteration {outcome.iteration}, which is saved; the same command resumes from there")
    return typer.Exit(128 + (outcome.signal or 0))
