"""`dnlnet demo`: attention of a trained network, and of two small ones trained on generated scenes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_variant
from dnlnet.cli.terminal.options import Seed, within
from dnlnet.cli.terminal.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dnlnet.runs.demo import Net


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path("demo"),
    steps: Annotated[
        int, within(1, 1_000_000, "Training steps of each network; 400 take about a minute on two cores.")
    ] = 400,
    variant: Annotated[
        str,
        typer.Option(
            metavar="VARIANT", help="Attention variant of the first network.", autocompletion=complete_variant
        ),
    ] = "dnl",
    against: Annotated[
        str,
        typer.Option(metavar="VARIANT", help="Variant to compare with, or `none`.", autocompletion=complete_variant),
    ] = "nl",
    seed: Seed = 0,
) -> None:
    """Show what a trained network attends to in an image, then train two small networks and compare them.

    Within seconds, pets.png and explore.html show the attention in a photo of a cat; if dnlnet-street is installed,
    street.png and the page show it in two street scenes instead. After about a minute of training per network on
    generated scenes, attention.png, scores.json and the page show what they learned. Run the same command again to
    resume. Nothing is downloaded.

    Example: dnlnet demo --variant dnl_dagger --out demo/dagger
    """
    typer.echo("loading PyTorch and the included model", err=True)
    from dnlnet.cli.commands.consistency import print_overlaps
    from dnlnet.cli.commands.train import stopped
    from dnlnet.lens.measure import BOUNDARY_WIDTH
    from dnlnet.progress import Bars
    from dnlnet.runs.demo import StoppedError, run_demo

    variants = [variant] if against == "none" else [variant, against]
    try:
        found = run_demo(out, variants, steps=steps, seed=seed, progress=Bars())
    except StoppedError as error:
        raise stopped(error.outcome) from None
    _print_scores(found.nets)
    print_overlaps(
        found.overlaps, f"mean ± standard error over scenes; boundary: nearer than {BOUNDARY_WIDTH} px to a contour"
    )
    seconds = [net.seconds for net in found.nets.values() if net.seconds is not None]
    typer.echo(f"trained in {sum(seconds):.0f} s" if seconds else f"trained earlier: {out / 'runs'}")
    typer.echo(f"written: {found.photo}, {found.figure}, {found.scores}")
    typer.echo(f"open {found.page} in a browser and point at a pixel")


def _print_scores(nets: "Mapping[str, Net]") -> None:
    """Print the IoU of each class and its mean, and the mean before training."""

    labels = next(iter(nets.values())).model.classes.names
    rows = [
        {"class": label} | {name: f"{net.after.iou()[number]:.3f}" for name, net in nets.items()}
        for number, label in enumerate(labels)
    ]
    rows.append({"class": "mean"} | {name: f"{net.after.miou():.3f}" for name, net in nets.items()})
    rows.append({"class": "mean, untrained"} | {name: f"{net.before.miou():.3f}" for name, net in nets.items()})
    print_table("IoU on held-out scenes", rows)
