"""`dnlnet demo`: train two small networks on generated scenes, and show what their blocks attend to."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dnlnet.cli.numbers import LARGEST_SEED

if TYPE_CHECKING:
    from dnlnet.lens.consistency import Average
    from dnlnet.lens.views import Picture
    from dnlnet.segmentation.scenes import Outcome

# Held-out scenes to be looked at; the first, with all six classes in it, also becomes a figure.
_PICTURED = (1, 0, 2)
# Of scenes of 96 pixels; the paper's 5 are of images of 1024.
_BOUNDARY_WIDTH = 2


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")] = Path("demo"),
    steps: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Training steps; 400 take about a minute on two cores, twice.")
    ] = 400,
    variant: Annotated[str, typer.Option(help="Attention of the block, a row of dnlnet.VARIANTS.")] = "dnl",
    against: Annotated[str, typer.Option(help="Attention of the net to compare with; none leaves it out.")] = "nl",
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the first weights and of the training scenes.")
    ] = 0,
) -> None:
    """Train two small networks on generated scenes for a minute each, and show what their blocks attend to.

    Writes attention.png, the page explore.html, and scores.json. Nothing is downloaded.

    Example: dnlnet demo --variant dnl_dagger --out demo/dagger
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")

    from dnlnet.attention.spec import find_variant

    variants = list(dict.fromkeys([variant] if against == "none" else [variant, against]))
    for name in variants:
        find_variant(name)
    out.mkdir(parents=True, exist_ok=True)

    from dnlnet.cli.consistency import print_overlaps
    from dnlnet.files import atomic_write, write_json
    from dnlnet.lens.explorer import explorer_page
    from dnlnet.lens.figures import attention_figure
    from dnlnet.lens.panels import save_figure

    outcomes = {name: _train(name, steps, seed) for name in variants}
    _print_scores(outcomes)
    overlaps = _measure(outcomes)
    print_overlaps(
        overlaps, f"mean ± standard error over scenes; boundary: nearer than {_BOUNDARY_WIDTH} px to a contour"
    )

    pictures = _look(outcomes)
    figure, page, scores = out / "attention.png", out / "explore.html", out / "scores.json"
    save_figure(attention_figure(pictures[0], pictures[0].interior_points()), figure)
    with atomic_write(page) as temporary:
        temporary.write_text(explorer_page(pictures, title="What attention learnt"), encoding="utf-8")
    write_json(scores, {"steps": steps, "seed": seed, **_content(outcomes, overlaps)})
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    typer.echo(f"trained in {seconds:.0f} s")
    typer.echo(f"written: {figure}, {scores}")
    typer.echo(f"open {page} in a browser, and point at a pixel")


def _train(variant: str, steps: int, seed: int) -> "Outcome":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from dnlnet.segmentation.scenes import run

    loss_column = TextColumn("loss {task.fields[loss]:.3f}, time left")
    with Progress(
        f"training {variant}", BarColumn(), MofNCompleteColumn(), loss_column, TimeRemainingColumn()
    ) as bar:
        task = bar.add_task("training", total=steps, loss=float("nan"))
        return run(variant, steps, seed, progress=lambda done, loss: bar.update(task, completed=done, loss=loss))


def _print_scores(outcomes: "dict[str, Outcome]") -> None:
    """IoU of each class, after training, and of the mean before it."""
    from dnlnet.cli.tables import print_table
    from dnlnet.segmentation.data.scenes import CLASSES

    rows = [
        {"class": label} | {name: f"{outcome.after.iou()[number]:.3f}" for name, outcome in outcomes.items()}
        for number, label in enumerate(CLASSES.names)
    ]
    rows.append({"class": "mean"} | {name: f"{outcome.after.miou():.3f}" for name, outcome in outcomes.items()})
    rows.append(
        {"class": "mean, untrained"} | {name: f"{outcome.before.miou():.3f}" for name, outcome in outcomes.items()}
    )
    print_table("IoU on scenes not trained on", rows)


def _measure(outcomes: "dict[str, Outcome]") -> "dict[str, dict[str, Average | None]]":
    """Overlaps of each net's attention with the truth of the held-out scenes, and those of a uniform map."""
    from dnlnet.lens.consistency import RANDOM, average_overlaps, measure_overlaps
    from dnlnet.segmentation.data.samples import Sample
    from dnlnet.segmentation.data.scenes import CLASSES
    from dnlnet.segmentation.scenes import held_out_scenes

    scenes = held_out_scenes()
    rows: dict[str, dict[str, Average | None]] = {}
    random = {}
    for name, outcome in outcomes.items():
        samples = (Sample(*scenes[index], str(index)) for index in range(len(scenes)))
        measured = measure_overlaps(
            outcome.model,
            samples,
            len(CLASSES),
            lambda network, image: network(image[None]),
            width=_BOUNDARY_WIDTH,
            random=True,
        )
        random[RANDOM] = average_overlaps(measured.pop(RANDOM))
        rows[name] = average_overlaps(next(iter(measured.values())))
    return rows | random


def _look(outcomes: "dict[str, Outcome]") -> "list[Picture]":
    """Scenes not trained on, with what each net made of them."""
    import numpy as np
    import torch

    from dnlnet.lens.capture import capture
    from dnlnet.lens.views import Picture, View
    from dnlnet.segmentation.data.scenes import CLASSES
    from dnlnet.segmentation.scenes import held_out_scenes

    pictures = []
    for index in _PICTURED:
        image, labels = held_out_scenes()[index]
        views = []
        for name, outcome in outcomes.items():
            with capture(outcome.model) as blocks, torch.no_grad():
                prediction = outcome.model(image[None]).logits.argmax(dim=1)[0]
            views.append(View(name, blocks["block"], prediction.to(torch.uint8).numpy()))
        pixels = (255 * image).round().to(torch.uint8).permute(1, 2, 0).numpy()
        pictures.append(Picture(f"scene {index}", pixels, views, labels.numpy().astype(np.uint8), CLASSES))
    return pictures


def _content(outcomes: "dict[str, Outcome]", overlaps: "dict[str, dict[str, Average | None]]") -> dict[str, Any]:
    """Everything that was printed, for the file of scores."""
    from dnlnet.cli.consistency import overlaps_json
    from dnlnet.segmentation.data.scenes import CLASSES

    nets = {
        name: {
            "parameters": sum(parameter.numel() for parameter in outcome.model.parameters()),
            "seconds": round(outcome.seconds, 1),
            "miou": {"before": outcome.before.miou(), "after": outcome.after.miou()},
            "iou": {
                label: {"before": before, "after": after}
                for label, before, after in zip(
                    CLASSES.names, outcome.before.known_iou(), outcome.after.known_iou(), strict=True
                )
            },
        }
        for name, outcome in outcomes.items()
    }
    return {"nets": nets, "overlaps": {"boundary_width": _BOUNDARY_WIDTH, "rows": overlaps_json(overlaps)}}
