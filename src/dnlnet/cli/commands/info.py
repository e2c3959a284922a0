"""`dnlnet info`: description of a model, export or checkpoint."""

from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes


@writes("json")
def info(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model file, run folder, model name, export, or file of weights.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Also build the network, and check that the weights fit it.")
    ] = False,
    json: Json = None,
) -> None:
    """Describe a model, an export or a checkpoint without executing any code in it.

    A model is described by its recipe, classes, size and score; an ONNX file or PyTorch program by its inputs and
    outputs; a checkpoint of another code base by its origin and the result of dnlnet convert; a file of weights by
    its backbone.

    Example: dnlnet info runs/camvid
    """
    import yaml

    from dnlnet.conversion.describe import describe

    content = describe(model, check=check)
    typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)
    write_result(json, content)
