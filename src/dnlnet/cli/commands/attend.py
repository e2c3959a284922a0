"""`dnlnet attend`: figures, numbers and a page of what models attend to in images."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.inputs import end_with, open_inputs, open_models
from dnlnet.cli.terminal.options import (
    MOST,
    Against,
    AnyModel,
    Heads,
    ImageSize,
    Inputs,
    Layers,
    Weights,
    parse_heads,
    parse_layers,
    within,
)
from dnlnet.cli.terminal.outputs import Force, writes, written


@writes("page")
def attend(
    model: AnyModel,
    inputs: Inputs,
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y",
            help="Query point in pixels; X,Y,FRAME in a video. Repeat for several. Default: chosen automatically.",
        ),
    ] = None,
    against: Against = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: ImageSize = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the images' data set, to show their labels.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="OUT", help="Folder for the figures. Default: attended, or no figures with --page."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write one page to explore all images in a browser.")
    ] = None,
    max_pixels: Annotated[int, within(1024, MOST, "Shrink larger images.")] = 4_000_000,
    force: Force = False,
) -> None:
    """Show what a model attends to: the pairwise map of each query point, the unary map, and both together.

    For each image, OUT gets a figure as PNG and PDF, the raw maps (.npz), and a description (.json). The page is one
    file that needs no server: point at a pixel to see its maps.

    Query points snap to the grid of the attention block. For a video, the clip in its middle is shown. For a
    transformer, the figure has one row per layer and head, and the page lets you select them.

    Inputs that cannot be read are listed at the end; the exit code is then 1, or 2 if none could be read.

    Example: dnlnet attend runs/dnl street.jpg --query 120,80 --against runs/nl -o figures --page explore.html

    Example: dnlnet attend timm:vit_small_patch14_dinov2 cat.jpg --layers 5,8 --heads all -o figures
    """
    if out is None and page is None:
        out = Path("attended")
    queries = [_query(text) for text in query or []]
    chosen_layers, chosen_heads = parse_layers(layers), parse_heads(heads)

    first, *others = open_models([model, *(against or ())])
    with open_inputs(inputs) as found:
        from dnlnet.runs.attend import attend as attend_models

        result = attend_models(
            first,
            found.paths,
            queries=queries,
            against=others,
            weights=weights,
            size=size,
            layers=chosen_layers,
            heads=chosen_heads,
            data=data,
            out=out,
            page=page,
            max_pixels=max_pixels,
            force=force,
            progress=found.bars(),
        )
    if result.out is not None:
        typer.echo(f"written: {result.shown} x png, pdf, npz, json in {result.out}")
    if result.page is not None:
        typer.echo(f"{written(result.page)}; open it in a browser")
    end_with([found.named(problem) for problem in result.problems], result.count)


def _query(text: str) -> tuple[int, ...]:
    """Parse X,Y or X,Y,FRAME."""
    try:
        x, y, *frame = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--query {text}: expected x,y in whole pixels, such as 120,80") from None
    if len(frame) > 1:
        raise ValueError(f"--query {text}: expected x,y, or x,y,frame for a video")
    return x, y, *frame
