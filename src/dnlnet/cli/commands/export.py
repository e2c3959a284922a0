"""`dnlnet export`: a trained model for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.numbers import finite
from dnlnet.cli.terminal.options import Model
from dnlnet.cli.terminal.outputs import writes, written


class Form(StrEnum):
    """What to write."""

    onnx = "onnx"
    torch = "torch"
    safetensors = "safetensors"


class Attention(StrEnum):
    """How the file attends."""

    blocked = "blocked"
    plain = "plain"


class Part(StrEnum):
    """Of a detector."""

    whole = "whole"
    pyramid = "pyramid"


_ENDINGS = {Form.onnx: ".onnx", Form.torch: ".pt2", Form.safetensors: ".safetensors"}


@writes("out", "json")
def export(
    model: Model,
    form: Annotated[Form, typer.Option("--format", help="For ONNX Runtime, for torch.export.load, or for dnlnet.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write. Default: the recipe's name.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="HxW", help="Height and width of the input. Default: the recipe's.")
    ] = None,
    dynamic: Annotated[
        str, typer.Option(metavar="AXES", help="Axes whose length is free at run time: batch,height,width, or all.")
    ] = "",
    with_maps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y",
            help="Add outputs: the unary map, and the pairwise map of this point, given as shares of width and "
            "height; may be repeated.",
        ),
    ] = None,
    part: Annotated[
        Part, typer.Option(help="For a detector: all of it, or backbone and feature pyramid.")
    ] = Part.whole,
    attention: Annotated[
        Attention,
        typer.Option(
            help="A loop over blocks of queries, in little memory; or the whole N x N map at once, for runtimes "
            "without loops (onnx, torch)."
        ),
    ] = Attention.blocked,
    half: Annotated[bool, typer.Option("--half", help="Weights in 16 bits (safetensors).")] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            callback=finite,
            help="Largest difference allowed, as a share of an output's largest value.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the differences here.")] = None,
) -> None:
    """Write a trained model for other programs, run what was written, and compare it with the model.

    The input is RGB pixels in 0..255; normalisation is part of the file. Attention stays exact. Exit code
    1, and no file, if what was written computes something else.

    Example: dnlnet export runs/camvid --format onnx --dynamic all --with-maps 0.5,0.5 -o camvid.onnx
    """
    from dnlnet.artifacts.model_file import find_model, read_model_file
    from dnlnet.cli.terminal.sizes import parse_size
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.errors import require_package
    from dnlnet.files import write_json

    find_model(model)
    if form.value == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            require_package(package, "onnx")

    from dnlnet.export import FREE_AXES
    from dnlnet.runs.export import DifferenceError
    from dnlnet.runs.export import export as export_model

    queries = [_query(text) for text in with_maps or []]
    lengths = None
    if size is not None:
        height, width = parse_size(size, (512, 1024))
        lengths = height, width
    named = [axis.strip() for axis in dynamic.split(",")] if dynamic else []
    free = FREE_AXES if dynamic == "all" else named
    found = read_model_file(find_model(model))
    path = out or Path(found.recipe.name).with_suffix(_ENDINGS[form])
    typer.echo(f"{found.path}: {found.recipe.name} as {form}; this takes a minute")
    try:
        exported = export_model(
            found,
            path,
            form.value,
            size=lengths,
            free=free,
            queries=queries,
            part=part.value,
            attention=attention.value,
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
    print_table(title, rows, "as a share of the output's largest value")
    if exported.remark:
        typer.echo(exported.remark)
    typer.echo(written(path))
    if json is not None:
        write_json(
            json,
            {
                "file": str(path),
                "input": exported.takes,
                "outputs": exported.outputs,
                "differences": exported.differences,
                "largest": exported.largest,
            },
        )
        typer.echo(f"written: {json}")


def _query(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--with-maps {text}: expected shares of width and height, such as 0.5,0.25") from None
