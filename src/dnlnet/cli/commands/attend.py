"""`dnlnet attend`: figures, numbers and a page of what models attend to in pictures."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Heads, Layers, LookModel, LookSize, Weights, heads_of, layers_of
from dnlnet.cli.terminal.outputs import Force, writes, written


@writes("page")
def attend(
    model: LookModel,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Pictures or videos, folders of them, or addresses.")
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y", help="A query point in pixels; X,Y,FRAME in a clip; may be repeated. Default: chosen."
        ),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another model to compare with; may be repeated.")
    ] = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: LookSize = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the data set that the pictures belong to; their labels are shown."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Folder for the figures.")] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write one page to explore all pictures with, for a browser.")
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(min=1024, max=1_000_000_000, help="Larger pictures are made smaller.")
    ] = 4_000_000,
    force: Force = False,
) -> None:
    """Show what a model attends to: the pairwise maps of query points, the unary map, and both together.

    OUT gets, for each picture, a figure as PNG and PDF, the raw maps (.npz), and what is in them (.json). The page is
    one file that needs no server: point at a pixel to see its maps. Query points snap to the block's grid. Of a video
    the clip in its middle is shown, frame by frame. What cannot be read is listed at the end; the exit code is then
    1, or 2 if nothing could be read.

    For a transformer, the same of its layers and heads: one row for each in a figure, and selectors in the page.

    Example: dnlnet attend runs/dnl street.jpg --query 120,80 --against runs/nl -o figures --page explore.html

    Example: dnlnet attend timm:vit_small_patch14_dinov2 cat.jpg --layers 5,8 --heads all -o figures
    """
    if out is None and page is None:
        raise ValueError("nothing to write: give a folder for figures with -o OUT, a file with --page HTML, or both")
    queries = [_query(text) for text in query or []]
    chosen_layers, chosen_heads = layers_of(layers), heads_of(heads)

    from dnlnet.cli.terminal.early import require_folder, require_models
    from dnlnet.cli.terminal.inputs import open_inputs
    from dnlnet.cli.terminal.problems import end_with, say
    from dnlnet.cli.terminal.progress import counting_progress

    require_models([model, *(against or ())])
    require_folder(data)
    with open_inputs(inputs) as found:
        from dnlnet.runs.attend import attend as attend_models

        with counting_progress() as progress:
            task = progress.add_task("looking", total=None, visible=False)
            result = attend_models(
                model,
                found.paths,
                queries=queries,
                against=against or (),
                weights=weights,
                size=size,
                layers=chosen_layers,
                heads=chosen_heads,
                data=data,
                out=out,
                page=page,
                max_pixels=max_pixels,
                force=force,
                report=lambda text: say(found.named(text)),
                start=lambda count: progress.update(task, total=count, visible=True),
                advance=lambda: progress.advance(task),
            )
    if result.out is not None:
        typer.echo(f"written: {result.shown} x png, pdf, npz, json in {result.out}")
    if result.page is not None:
        typer.echo(f"{written(result.page)}; open it in a browser")
    end_with([found.named(problem) for problem in result.problems], result.count)


def _query(text: str) -> tuple[int, ...]:
    """(x, y) or (x, y, frame)."""
    try:
        x, y, *frame = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--query {text}: expected x,y in whole pixels, such as 120,80") from None
    if len(frame) > 1:
        raise ValueError(f"--query {text}: expected x,y, or x,y,frame for a video")
    return x, y, *frame
