"""`dnlnet export`: trained models for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dnlnet.cli.terminal.options import Json, Model, parse_size, within
from dnlnet.cli.terminal.outputs import write_result, writes, written
from dnlnet.cli.terminal.tables import print_table

_SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}


@writes("out", "json")
def export(
    model: Model,
    form: Annotated[
        Literal["onnx", "torch", "safetensors"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="onnx for ONNX Runtime, torch for torch.export.load, or safetensors for dnlnet.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write. Default: the recipe's name.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="HxW", help="Fix the height and width of the input. Default: any size.")
    ] = None,
    dynamic: Annotated[
        str | None,
        typer.Option(
            metavar="AXES",
            help="Axes of free length: batch,height,width, or all. Default: none with --size, otherwise all that the "
            "network allows.",
        ),
    ] = None,
    with_maps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y",
            help="Also output the unary map and the pairwise map of this point, given as fractions of width and "
            "height. Repeat for several points.",
        ),
    ] = None,
    part: Annotated[
        Literal["whole", "pyramid"],
        typer.Option(metavar="whole|pyramid", help="Whole detector, or its backbone and feature pyramid."),
    ] = "whole",
    attention: Annotated[
        Literal["blocked", "plain"],
        typer.Option(
            metavar="blocked|plain",
            help="blocked loops over blocks of queries in little memory; plain computes the N x N map at once, for "
            "runtimes without loops.",
        ),
    ] = "blocked",
    half: Annotated[bool, typer.Option("--half", help="Store weights in 16 bits (safetensors).")] = False,
    tolerance: Annotated[
        float | None,
        within(0, 1, "Largest allowed difference, relative to the largest value of an output.", "0..1"),
    ] = None,
    json: Json = None,
) -> None:
    """Export a trained model for other programs, run the file, and compare it with the model.

    The input is RGB pixels in 0..255, of any size and batch; normalisation is part of the file. Attention stays
    exact. If the outputs of the file differ from the model's, the file is discarded and the exit code is 1.

    Example: dnlnet export runs/camvid --format onnx --with-maps 0.5,0.5 -o camvid.onnx
    """
    from dnlnet.artifacts.model_file import open_model
    from dnlnet.errors import require_package

    found = open_model(model)
    if form == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            require_package(package, "onnx")

    from dnlnet.deployment import FREE_AXES
    from dnlnet.runs.export import DifferenceError
    from dnlnet.runs.export import export as export_model

    queries = [_query(text) for text in with_maps or []]
    lengths = None
    if size is not None:
        height, width = parse_size(size, (512, 1024))
        lengths = height, width
    named = None if dynamic is None else [axis.strip() for axis in dynamic.split(",") if axis]
    free = FREE_AXES if dynamic == "all" else named
    path = out or Path(found.recipe.name).with_suffix(_SUFFIXES[form])
    typer.echo(f"{found.path}: {found.recipe.name} as {form}; this takes a minute")
    try:
        exported = export_model(
            found,
            path,
            form,
            size=lengths,
            free=free,
            queries=queries,
            part=part,
            attention=attention,
            half=half,
            tolerance=tolerance,
        )
    except DifferenceError as error:
        typer.secho(f"{error}", fg="red", err=True)
        raise typer.Exit(1) from None
    rows = [
        {"input": shape, "output": name, "largest difference": f"{difference:.1e}"}
        for shape, differences in exported.differences.items()
        for name, difference in differences.items()
    ]
    title = f"{exported.takes} -> {', '.join(exported.outputs)}"
    print_table(title, rows, "relative to the largest value of the output")
    if exported.remark:
        typer.echo(exported.remark)
    typer.echo(written(path))
    write_result(
        json,
        {
            "file": str(path),
            "input": exported.takes,
            "outputs": exported.outputs,
            "differences": exported.differences,
            "largest": exported.largest,
        },
    )


def _query(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--with-maps {text}: expected fractions of width and height, such as 0.5,0.25") from None
