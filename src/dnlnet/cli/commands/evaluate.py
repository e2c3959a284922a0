"""`dnlnet eval`: score a model on a data set."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Device, Json, Model, Precision, Workers, given, within
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import print_table


@writes("json", "picture", "results")
def evaluate(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the data set. Default: the folder used for training."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="Split to score. Default: the recipe's test split.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Use whole images even if the recipe uses windows.")] = False,
    window: Annotated[
        int | None, within(1, 65_536, "Side of sliding windows, with a stride of two thirds.", "PIXELS")
    ] = None,
    scales: Annotated[
        str | None, typer.Option(metavar="0.5,1", help="Scales of the image to average over, comma-separated.")
    ] = None,
    flip: Annotated[
        bool | None,
        typer.Option("--flip/--no-flip", help="Average with the mirrored image. Default: as in the recipe."),
    ] = None,
    workers: Workers = 1,
    device: Device = None,
    precision: Precision = "auto",
    json: Json = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the confusion matrix into this file (segmentation).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the detections in COCO's format (detection).")
    ] = None,
) -> None:
    """Score a model on a data set.

    Segmentation: mean IoU, IoU per class, and pixel accuracy. Detection: COCO's average precision of boxes and masks.
    Video: top-1 and top-5 accuracy over all views of each video.

    The recipe sets how images are fed to the network; --whole, --window, --scales and --flip override it. Under
    torchrun, the processes share the images and the scores stay the same.

    Example: dnlnet eval runs/camvid --json scores.json --picture confusion.png
    """
    from dnlnet.artifacts.model_file import open_model
    from dnlnet.progress import Bars
    from dnlnet.registry import require_score_files

    file = open_model(model)
    files = given(picture=picture, results=results)
    require_score_files(file.recipe, files)

    from dnlnet.runs.evaluate import evaluate as evaluate_model

    scores = evaluate_model(
        file,
        data,
        split=split,
        whole=whole,
        window=window,
        scales=scales,
        flip=flip,
        workers=workers,
        device=device,
        precision=precision,
        progress=Bars(),
    )
    if scores is None:
        return  # the main process prints
    if precision == "bfloat16":
        typer.echo("scored in bfloat16", err=True)
    for table in scores.tables:
        print_table(table.title, table.rows, table.caption)
    for note in scores.notes:
        typer.echo(note, err=True)
    write_result(json, scores.content)
    for name, path in files.items():
        scores.files[name](path)
        typer.echo(f"written: {path}")
