"""`dnlnet convert`: trained models of other code bases."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes


@writes("out", "json")
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint: .pth, .pt or .safetensors.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="MODEL", help="Model file to write (.safetensors).")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a detected or assumed value. Repeat for several values."
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Ignore tensors that are not part of the network.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Training configuration, if the checkpoint does not contain it."),
    ] = None,
    json: Json = None,
) -> None:
    """Convert a checkpoint of another code base to a model file for predict, eval, attend and the other commands.

    Nothing in the checkpoint is executed. What the weights do not show, such as how logits are resized, comes from
    the configuration or the file name. Assumptions are printed, and --set overrides them. If a tensor is missing or
    unknown, the command fails and writes no file.

    Example: dnlnet convert dnl_r50-d8_769x769_80k_cityscapes.pth -o dnl.safetensors
    """
    from dnlnet.conversion.converting import convert as convert_file
    from dnlnet.conversion.converting import describe_network
    from dnlnet.names import printable

    converted = convert_file(file, out, settings or [], partial=partial, config=config)
    names = list(converted.classes.names)
    typer.echo(f"{file}: {converted.family}")
    typer.echo(f"{describe_network(converted.recipe)}, {len(names)} classes ({printable(', '.join(names[:3]))}, ...)")
    for note in converted.notes:
        typer.echo(printable(f"note: {note}"))
    for name in converted.unused:
        typer.echo(f"unused: {name}")
    typer.echo(f"{len(converted.state)} tensors written: {out}")
    content = {
        "file": str(file),
        "family": converted.family,
        "model": str(out),
        "tensors": len(converted.state),
        "classes": names,
        "notes": converted.notes,
        "unused": converted.unused,
        "recipe": converted.recipe.stored(),
    }
    write_result(json, content)
