"""`dnlnet explore`: an application in the browser for one's own pictures."""

from typing import Annotated

import typer

from dnlnet.cli.terminal.numbers import finite
from dnlnet.cli.terminal.options import Heads, Layers, LookModel, LookSize, Weights, heads_of, layers_of


def explore(
    model: LookModel,
    against: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another model to compare with; may be repeated.")
    ] = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: LookSize = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port on which it listens, for this machine alone.")
    ] = 7860,
    max_megabytes: Annotated[
        float, typer.Option(min=0.1, max=10_000, callback=finite, help="Larger files are refused.")
    ] = 20,
    max_pixels: Annotated[
        int, typer.Option(min=1024, max=1_000_000_000, help="Pictures with more pixels are refused, too.")
    ] = 50_000_000,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Upload a picture in the browser, click in it, and see what the pixel attends to.

    Only this machine can reach it. Needs gradio: pip install "dnlnet[demo]". For a page to send to others, see
    dnlnet attend --page.

    Example: dnlnet explore runs/dnl --against runs/nl
    """
    chosen_layers, chosen_heads = layers_of(layers), heads_of(heads)

    from dnlnet.cli.terminal.early import require_models
    from dnlnet.cli.terminal.problems import say
    from dnlnet.errors import require_package

    require_package("gradio", "demo")
    require_models([model, *(against or ())])

    from dnlnet.runs.explore import open_explorer

    explorer = open_explorer(
        model,
        against=against or (),
        weights=weights,
        size=size,
        layers=chosen_layers,
        heads=chosen_heads,
        max_megabytes=max_megabytes,
        max_pixels=max_pixels,
        report=say,
    )
    from dnlnet.lens.show.app import launch

    typer.echo(f"starting; then open http://127.0.0.1:{port} (Ctrl-C stops it)")
    launch(explorer, port, browser)
