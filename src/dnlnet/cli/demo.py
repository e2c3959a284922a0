"""`dnlnet demo`: train a small network on generated scenes, and draw what its block attends to."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dnlnet.models.tiny import TinySegmentor
    from dnlnet.tasks.scenes import Outcome

# One of the held-out scenes, with all six classes in it.
_PICTURED = 1


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")] = Path("demo"),
    steps: Annotated[int, typer.Option(help="Training steps; 400 take about a minute on two cores.")] = 400,
    variant: Annotated[str, typer.Option(help="Attention of the block, a row of dnlnet.VARIANTS.")] = "dnl",
    seed: Annotated[int, typer.Option(help="Seed of the first weights and of the training scenes.")] = 0,
) -> None:
    """Train a small network on generated scenes for a minute, and draw what its block attends to.

    Writes attention.png and scores.json. Nothing is downloaded.

    Example: dnlnet demo --variant nl --out demo/nl
    """
    if steps < 1:
        raise ValueError(f"--steps must be at least 1, got {steps}")
    if seed < 0:
        raise ValueError(f"--seed must be at least 0, got {seed}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")

    from dnlnet.attention.spec import find_variant

    find_variant(variant)
    out.mkdir(parents=True, exist_ok=True)

    from dnlnet.cli.tables import print_table, write_json
    from dnlnet.data.scenes import CLASSES

    outcome = _train(variant, steps, seed)
    before, after = outcome.before, outcome.after
    ious = zip(CLASSES.names, before.iou().tolist(), after.iou().tolist(), strict=True)
    rows = [*ious, ("mean", before.miou(), after.miou())]
    print_table(
        "IoU on scenes not trained on",
        [{"class": name, "before": f"{old:.3f}", "after": f"{new:.3f}"} for name, old, new in rows],
    )
    picture, scores = out / "attention.png", out / "scores.json"
    _draw(outcome.model, picture)
    content = {
        "variant": variant,
        "steps": steps,
        "seed": seed,
        "parameters": sum(parameter.numel() for parameter in outcome.model.parameters()),
        "seconds": round(outcome.seconds, 1),
        "miou": {"before": before.miou(), "after": after.miou()},
        "iou": {name: {"before": old, "after": new} for name, old, new in rows[:-1]},
    }
    write_json(scores, content)
    typer.echo(f"trained in {outcome.seconds:.0f} s")
    typer.echo(f"written: {picture}, {scores}")


def _train(variant: str, steps: int, seed: int) -> "Outcome":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from dnlnet.tasks.scenes import run

    loss_column = TextColumn("loss {task.fields[loss]:.3f}, time left")
    with Progress("training", BarColumn(), MofNCompleteColumn(), loss_column, TimeRemainingColumn()) as bar:
        task = bar.add_task("training", total=steps, loss=float("nan"))
        return run(variant, steps, seed, progress=lambda done, loss: bar.update(task, completed=done, loss=loss))


def _draw(model: "TinySegmentor", path: Path) -> None:
    """The attention of three points, each well inside a region of its own class."""
    import torch

    from dnlnet.analysis.figures import attention_figure, interior_points, save_figure
    from dnlnet.data.scenes import CLASSES, Scenes
    from dnlnet.tasks.scenes import HELD_OUT_COUNT, HELD_OUT_SEED, SIZE

    image, labels = Scenes(HELD_OUT_COUNT, SIZE, HELD_OUT_SEED)[_PICTURED]
    points = interior_points(labels, count=3)
    assert model.block is not None  # the command always asks for one
    with torch.no_grad():
        prediction = model(image[None]).logits.argmax(dim=1)[0]
        features = model.block_input(image[None])
    maps = model.block.attention_maps(features, [(y // model.stride, x // model.stride) for y, x in points])
    figure = attention_figure(image, maps, points, CLASSES, labels=labels, prediction=prediction)
    save_figure(figure, path)
