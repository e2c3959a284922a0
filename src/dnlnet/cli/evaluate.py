"""`dnlnet eval`: score a model on a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dnlnet.recipes.schema import Evaluation


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, a run folder, or a name on the hub.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")] = None,
    split: Annotated[str | None, typer.Option(help="Default: the one the recipe is tested on.")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Look at whole images, whatever the recipe says.")] = False,
    window: Annotated[
        int | None, typer.Option(min=1, help="Side of sliding windows; their stride is two thirds.")
    ] = None,
    scales: Annotated[str | None, typer.Option(help="Multiples of the image's size, separated by commas.")] = None,
    flip: Annotated[bool | None, typer.Option("--flip/--no-flip", help="Also look at the mirrored image.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read data.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the scores to this file.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the confusion matrix into this file.")
    ] = None,
) -> None:
    """Score a model on a data set: mean IoU, IoU of each class, pixel accuracy.

    Images are looked at as the model's recipe says, or as the options say. Under torchrun the images are shared out,
    and the scores are the same.

    Example: dnlnet eval runs/camvid --data ~/camvid --json scores.json --picture confusion.png
    """
    from dnlnet.analysis.confusion import confusion_figure
    from dnlnet.analysis.panels import save_figure
    from dnlnet.cli.progress import counting_progress
    from dnlnet.cli.tables import print_table, write_json
    from dnlnet.recipes.evaluate import evaluate_model
    from dnlnet.recipes.load import find_model, inference_of, read_model_file

    found = read_model_file(find_model(model))
    inference = inference_of(_as_asked(found.recipe.evaluation, whole, window, scales, flip))
    with counting_progress() as progress:
        task = progress.add_task("evaluating", total=None)
        matrix = evaluate_model(
            found,
            data,
            split=split,
            inference=inference,
            workers=workers,
            start=lambda count: progress.update(task, total=count),
            progress=lambda: progress.advance(task),
        )
    if matrix is None:
        return  # another process speaks
    by_class = dict(zip(found.classes.names, matrix.known_iou(), strict=True))
    rows = [
        {"class": name, "IoU": "-" if iou is None else f"{iou:.3f}", "": "█" * round(24 * (iou or 0))}
        for name, iou in by_class.items()
    ]
    scores = matrix.scores()
    caption = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    print_table(f"{found.recipe.name} after {found.iteration} iterations", rows, caption)
    if json is not None:
        write_json(json, {**scores, "by_class": by_class, "confusion": matrix.counts.tolist()})
        typer.echo(f"written: {json}")
    if picture is not None:
        save_figure(confusion_figure(matrix.counts, found.classes), picture)
        typer.echo(f"written: {picture}")


def _as_asked(
    evaluation: "Evaluation", whole: bool, window: int | None, scales: str | None, flip: bool | None
) -> "Evaluation":
    """The recipe's way of looking at images with what the options replace."""
    from dnlnet.recipes.schema import Evaluation

    content = evaluation.model_dump()
    if whole and window is not None:
        raise ValueError("--whole and --window contradict each other; give one of them")
    if whole:
        content |= {"window": None, "stride": None, "scales": (1.0,), "flip": False}
    if window is not None:
        stride = max(1, round(window * 2 / 3))
        content |= {"window": (window, window), "stride": (stride, stride)}
    if scales is not None:
        try:
            content["scales"] = tuple(float(scale) for scale in scales.split(","))
        except ValueError:
            raise ValueError(f"--scales {scales}: expected numbers separated by commas, such as 0.5,1,1.5") from None
    if flip is not None:
        content["flip"] = flip
    return Evaluation.model_validate(content)
