"""`dnlnet eval`: score a model on a data set."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.numbers import MOST_THREADS
from dnlnet.cli.terminal.options import Model
from dnlnet.cli.terminal.outputs import writes


@writes("json", "picture", "results")
def evaluate(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the data set. Default: the one that the run was trained on."),
    ] = None,
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
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda:1", help="Default: a graphics card, if there is one.")
    ] = None,
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

    Example: dnlnet eval runs/camvid --json scores.json --picture confusion.png
    """
    from dnlnet.artifacts.model_file import find_model, read_model_file
    from dnlnet.cli.terminal.early import require_folder
    from dnlnet.cli.terminal.options import given
    from dnlnet.cli.terminal.problems import say
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.files import write_json
    from dnlnet.progress import Bars
    from dnlnet.registry import require_score_files
    from dnlnet.runs.run_folder import remembered_data

    file = read_model_file(find_model(model))
    files = given(picture=picture, results=results)
    require_score_files(file.recipe, files)
    require_folder(data)
    if data is None and (data := remembered_data(file.path)) is not None:
        say(f"data: {data}, which the run was trained on")

    from dnlnet.runs.evaluate import evaluate as evaluate_model

    scores = evaluate_model(
        file,
        data,
        split=split,
        options=given(whole=whole or None, window=window, scales=scales, flip=flip),
        workers=workers,
        device=device,
        progress=Bars(),
    )
    if scores is None:
        return  # another process speaks
    for table in scores.tables:
        print_table(table.title, table.rows, table.caption)
    for note in scores.notes:
        typer.echo(note, err=True)
    if json is not None:
        write_json(json, scores.content)
        typer.echo(f"written: {json}")
    for name, path in files.items():
        scores.files[name](path)
        typer.echo(f"written: {path}")
