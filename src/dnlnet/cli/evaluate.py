"""`dnlnet eval`: score a model on a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.numbers import MOST_THREADS

if TYPE_CHECKING:
    from dnlnet.detection.metric import AveragePrecision, Kind
    from dnlnet.recipes.model_file import ModelFile
    from dnlnet.recipes.schema import Evaluation
    from dnlnet.segmentation.metric import ConfusionMatrix
    from dnlnet.video.metric import TopK

_KINDS: "tuple[Kind, ...]" = ("box", "mask")


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, a run folder, or a name on the hub.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")] = None,
    split: Annotated[str | None, typer.Option(help="Default: the one the recipe is tested on.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Feed whole images to the network, whatever the recipe says.")
    ] = False,
    window: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Side of sliding windows; their stride is two thirds.")
    ] = None,
    scales: Annotated[str | None, typer.Option(help="Multiples of the image's size, separated by commas.")] = None,
    flip: Annotated[bool | None, typer.Option("--flip/--no-flip", help="Also look at the mirrored image.")] = None,
    workers: Annotated[int, typer.Option(min=0, max=MOST_THREADS, help="Processes that read data.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the scores to this file.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the confusion matrix into this file.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Write a detector's results here, in COCO's format.")] = None,
) -> None:
    """Score a model on a data set.

    Segmentation: mean IoU, IoU of each class, pixel accuracy; images are fed to the network as the recipe says, or as
    the options say. Detection: COCO's average precision of boxes and masks. Video: top-1 and
    top-5 accuracy over all views of a video. Under torchrun the processes share the images, and the scores are the
    same.

    Example: dnlnet eval runs/camvid --data ~/camvid --json scores.json --picture confusion.png
    """
    from dnlnet.cli.progress import counting_progress
    from dnlnet.recipes.evaluate import evaluate_model
    from dnlnet.recipes.load import inference_of
    from dnlnet.recipes.model_file import find_model, read_model_file
    from dnlnet.recipes.schema import DetectionRecipe, SegmentationRecipe, VideoRecipe

    found = read_model_file(find_model(model))
    inference = None
    if isinstance(found.recipe, SegmentationRecipe):
        asked = _as_asked(found.recipe.evaluation, whole, window, scales, flip)
        inference = inference_of(asked, found.recipe.model.align_corners)
    elif whole or window is not None or scales is not None or flip is not None or picture is not None:
        raise ValueError("--whole, --window, --scales, --flip and --picture are for segmentation models")
    if results is not None and not isinstance(found.recipe, DetectionRecipe):
        raise ValueError(f"--results is for detectors; dnlnet predict writes what a {found.recipe.task} model finds")
    with counting_progress() as progress:
        task = progress.add_task("evaluating", total=None)
        metric = evaluate_model(
            found,
            data,
            split=split,
            inference=inference,
            workers=workers,
            start=lambda count: progress.update(task, total=count),
            progress=lambda: progress.advance(task),
        )
    if metric is None:
        return  # another process speaks
    if isinstance(found.recipe, SegmentationRecipe):
        _show_segmentation(found, metric, json, picture)
    elif isinstance(found.recipe, VideoRecipe):
        _show_video(found, metric, json)
    else:
        _show_detection(found, metric, json, results)


def _show_segmentation(
    found: "ModelFile", matrix: "ConfusionMatrix", json: Path | None, picture: Path | None
) -> None:
    from dnlnet.cli.tables import print_table, write_json
    from dnlnet.lens.confusion import confusion_figure
    from dnlnet.lens.panels import save_figure

    by_class = dict(zip(found.classes.names, matrix.known_iou(), strict=True))
    scores = matrix.known_scores()
    caption = ", ".join(f"{name} {value:.4f}" for name, value in matrix.scores().items())
    if not matrix.count:
        caption = "no labelled pixel: the labels are all ignored, so that there is no score"
    print_table(f"{found.recipe.name} after {found.iteration} iterations", _bars("IoU", by_class), caption)
    if json is not None:
        write_json(json, {**scores, "by_class": by_class, "confusion": matrix.counts.tolist()})
        typer.echo(f"written: {json}")
    if picture is not None:
        save_figure(confusion_figure(matrix.counts, found.classes), picture)
        typer.echo(f"written: {picture}")


def _show_detection(found: "ModelFile", metric: "AveragePrecision", json: Path | None, results: Path | None) -> None:
    from dnlnet.cli.tables import print_table, write_json

    scores = metric.known_scores()
    by_class = {kind: dict(zip(found.classes.names, metric.class_scores(kind), strict=True)) for kind in _KINDS}
    print_table("Box AP of the classes", _bars("AP", by_class["box"]))
    statistics = dict.fromkeys(name.split()[1] for name in scores)
    rows = [{"": kind} | {name: _number(scores[f"{kind} {name}"]) for name in statistics} for kind in _KINDS]
    print_table(f"{found.recipe.name} after {found.iteration} iterations", rows)
    if json is not None:
        write_json(json, {**scores, "by_class": by_class})
        typer.echo(f"written: {json}")
    if results is not None:
        write_json(results, metric.results())
        typer.echo(f"written: {results}")


def _show_video(found: "ModelFile", metric: "TopK", json: Path | None) -> None:
    from dnlnet.cli.tables import print_table, write_json

    by_class = dict(zip(found.classes.names, metric.class_scores(), strict=True))
    scores = metric.scores()
    caption = ", ".join([*(f"{name} {value:.4f}" for name, value in scores.items()), f"{metric.count} videos"])
    print_table(f"{found.recipe.name} after {found.iteration} iterations", _bars("top1", by_class), caption)
    for reason in metric.skipped:
        typer.echo(f"not counted: {reason}", err=True)
    for note in metric.notes:
        typer.echo(f"counted all the same: {note}", err=True)
    if json is not None:
        files = {"unreadable": metric.skipped, "damaged": metric.notes}
        write_json(json, {**scores, "videos": metric.count, "by_class": by_class, **files})
        typer.echo(f"written: {json}")


def _bars(name: str, by_class: "dict[str, float | None]") -> list[dict[str, object]]:
    """A row for each class, with its number and a bar."""
    return [
        {"class": label, name: _number(value), "": "█" * round(24 * (value or 0))}
        for label, value in by_class.items()
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _as_asked(
    evaluation: "Evaluation", whole: bool, window: int | None, scales: str | None, flip: bool | None
) -> "Evaluation":
    """The recipe's way of looking at images with what the options replace."""
    from dnlnet.data.validated import validated
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
    return validated(Evaluation, content)
