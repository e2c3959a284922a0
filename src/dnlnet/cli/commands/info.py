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
    """Describe a file without running anything in it.

    Models show their recipe, classes, size and score; ONNX files and PyTorch programs their inputs and outputs;
    checkpoints of other code bases their origin and what dnlnet convert would make of them; weights their backbone.

    Example: dnlnet info runs/camvid
    """
    import yaml

    from dnlnet.conversion.describe import describe

    content = describe(model, check=check)
    typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)
    write_result(json, content)
