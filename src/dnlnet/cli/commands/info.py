"""`dnlnet info`: what a file is."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.outputs import writes


@writes("json")
def info(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model file, a run folder, a name, a file of weights."),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Also build the network, and check that the model's weights fit it.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write it to this file.")] = None,
) -> None:
    """Print what a file is; nothing in it is run.

    A model: its recipe, classes, size and score. An ONNX file or a PyTorch program: its inputs and outputs. A
    checkpoint of another code base: which, and what dnlnet convert would make of it. Weights: of which backbone.

    Example: dnlnet info runs/camvid
    """
    import yaml

    from dnlnet.convert.describe import describe
    from dnlnet.files import write_json

    content = describe(model, check=check)
    typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)
    if json is not None:
        write_json(json, content)
        typer.echo(f"written: {json}")
