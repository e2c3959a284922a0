"""`dnlnet train`: train a recipe, and resume a stopped run."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dnlnet.cli.terminal.complete import complete_recipe
from dnlnet.cli.terminal.options import MOST, Data, Device, Seed, Settings, Workers, given, within

if TYPE_CHECKING:
    from dnlnet.engine.train import Outcome


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="Recipe name (see `dnlnet recipes list`). Default: a small recipe that suits the folder in --data.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder of the run. If it holds a stopped run, training resumes.")
    ],
    data: Data = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Initial backbone weights: a file, or `none` for random weights."),
    ] = None,
    iterations: Annotated[
        int | None, within(1, MOST, "Number of training iterations. Warm-up and later phases scale with it.")
    ] = None,
    batch: Annotated[int | None, within(1, 65_536, "Images or clips per iteration.")] = None,
    lr: Annotated[float | None, within(0, 100, "Learning rate.", "RATE")] = None,
    holdout: Annotated[
        float | None,
        within(0, 1, "Share of a folder without splits that is held out for the score. Default: 0.2.", "SHARE"),
    ] = None,
    device: Device = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Precision of the forward pass; auto is that of the recipe."),
    ] = "auto",
    settings: Settings = None,
    seed: Seed = 0,
    workers: Workers = 1,
    unpack: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep decoded images here, and read only crops of them.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the features of a frozen backbone here, to share them between runs."),
    ] = None,
    skip_nonfinite: Annotated[
        int, within(0, MOST, "Number of iterations that may be skipped because their loss is not finite.")
    ] = 0,
) -> None:
    """Train a recipe, on its data set or on your own images.

    Without a recipe, the layout of the data folder selects a small one: images with masks and classes.yaml, COCO's
    JSON, or one folder of videos per class. A folder without splits is divided by a hash of the file names.

    The run folder gets run.yaml, log.jsonl, checkpoints, best.safetensors, last.safetensors and report.md. Run the
    same command again to resume a stopped run from its last checkpoint. Start it with torchrun to train in several
    processes.

    Example: dnlnet train --data ~/my_images --out runs/mine

    Example: dnlnet train camvid-mbv2-dnl --data ~/camvid --out runs/camvid --iterations 400 --set optim.momentum=0.8
    """
    from dnlnet.progress import BARS
    from dnlnet.recipes.override import override, shorthands
    from dnlnet.registry import find_recipe
    from dnlnet.runs.choose import choose_recipe
    from dnlnet.runs.train import train as run

    if recipe is None and data is None:
        raise ValueError("give a RECIPE (see dnlnet recipes list), or --data DIR to have one chosen")
    base, why = choose_recipe(data) if recipe is None and data is not None else (find_recipe(recipe or ""), None)
    short = shorthands(
        base,
        **given(weights=weights, iterations=iterations, batch=batch, lr=lr, holdout=holdout),
        precision=None if precision == "auto" else precision,
    )
    chosen = override(base, [*short, *(settings or [])])
    if why is not None:
        BARS.say(why)
    outcome = run(
        chosen,
        data,
        out,
        seed=seed,
        workers=workers,
        unpacked=unpack,
        cache=cache,
        skip_nonfinite=skip_nonfinite,
        device=device,
    )

    from dnlnet.engine import distributed  # imports torch, like the rest of a run

    if not distributed.is_main():
        return
    if not outcome.finished:
        raise stopped(outcome)

    from dnlnet.artifacts.model_file import read_model_file
    from dnlnet.runs.report import write_report  # imports matplotlib, which only the main process needs

    best = out / "best.safetensors"
    if outcome.best is not None and best.exists():
        model = read_model_file(best)
        name = next(iter(model.scores or {}), "score")
        typer.echo(f"best: {name} {outcome.best:.4f}, after iteration {model.iteration} of {outcome.iteration}")
    typer.echo(f"report: {write_report(out)}")
    models = [path for path in (best, out / "last.safetensors") if path.exists()]
    typer.echo(f"models: {', '.join(map(str, models))}")
    run_text, example = quote(str(out)), chosen.card.example
    typer.echo(f"next: dnlnet predict {run_text} {example}")
    typer.echo(
        f"      dnlnet attend {run_text} {example}" if chosen.model.variant else f"      dnlnet eval {run_text}"
    )


def stopped(outcome: "Outcome") -> typer.Exit:
    """Explain how to resume a run that a signal stopped, and return the exit of the command."""
    typer.echo(f"stopped after iteration {outcome.iteration}, which is saved; rerun the command to resume")
    return typer.Exit(128 + (outcome.signal or 0))
