"""`dnlnet predict`: what is in one's own pictures and videos."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.numbers import finite


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, a run folder, or a name on the hub.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="PATHS...", help="Pictures, videos, folders of them.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="Folder for the results.")] = Path(
        "predicted"
    ),
    submission: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write what this benchmark's server takes, e.g. cityscapes.")
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(min=65536, max=1_000_000_000, help="Larger pictures are done in tiles.")
    ] = 4_000_000,
    threshold: Annotated[
        float,
        typer.Option(min=0, max=1, callback=finite, help="Objects that a detector is less sure of are left out."),
    ] = 0.5,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Predict pictures, the classes of pixels or the objects; or videos, what is done in them.

    A segmentation model writes index PNG, colour PNG, and the colours laid over the picture; a detector the picture
    with boxes, masks, names and scores, a mask for each object, and COCO-format JSON; a video model JSON with the
    probability of each class, of which it prints the surest.

    What is done is not done again: an interrupted job goes on. A broken file is reported and skipped, and the exit
    code is then 1. Under torchrun the pictures are shared out.

    Example: dnlnet predict runs/camvid photos/ street.jpg -o predicted
    """
    from dnlnet.cli.progress import counting_progress
    from dnlnet.engine.distributed import is_main, process_group, wait_for_all
    from dnlnet.recipes.load import load
    from dnlnet.recipes.model_file import find_model
    from dnlnet.recipes.outputs import join_results
    from dnlnet.recipes.predict import predict_pictures

    path = find_model(model)
    problems, skipped, done = [], 0, 0
    with process_group(), counting_progress() as progress:
        task = progress.add_task("predicting", total=None)
        for result in predict_pictures(
            load(path),
            path,
            inputs,
            out,
            submission=submission,
            max_pixels=max_pixels,
            threshold=threshold,
            force=force,
            start=lambda count: progress.update(task, total=count),
        ):
            progress.advance(task)
            if result.said:
                typer.echo(f"{result.path}\n{result.said}")
            skipped += result.skipped
            done += not result.skipped and result.problem is None
            if result.problem is not None:
                problems.append(result.problem)
                typer.echo(f"skipped {result.problem}", err=True)
        wait_for_all()
        if is_main():
            join_results(out)
            counts = [
                f"{done} done",
                f"{skipped} done before" if skipped else "",
                f"{len(problems)} bad" if problems else "",
            ]
            typer.echo(f"{', '.join(filter(None, counts))}; results: {out}")
    if problems:
        raise typer.Exit(1)
