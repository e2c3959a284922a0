"""`dnlnet explore`: a local web application to explore attention in your own images."""

from typing import Annotated

import typer

from dnlnet.cli.terminal.inputs import open_models
from dnlnet.cli.terminal.options import (
    MOST,
    Against,
    AnyModel,
    Heads,
    ImageSize,
    Layers,
    Weights,
    parse_heads,
    parse_layers,
    within,
)


def explore(
    model: AnyModel,
    against: Against = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: ImageSize = None,
    port: Annotated[int, within(1, 65535, "Local port.")] = 7860,
    max_megabytes: Annotated[float, within(0.1, 10_000, "Largest file accepted.", "MB")] = 20,
    max_pixels: Annotated[int, within(1024, MOST, "Largest image accepted.")] = 50_000_000,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Upload an image in the browser, click a pixel, and see what it attends to.

    Only this machine can reach the application. It needs gradio: pip install "dnlnet[demo]". To share results, write
    a page with dnlnet attend --page instead.

    Example: dnlnet explore runs/dnl --against runs/nl
    """
    chosen_layers, chosen_heads = parse_layers(layers), parse_heads(heads)

    from dnlnet.errors import require_package

    require_package("gradio", "demo")
    ours, *others = open_models([model, *(against or ())])

    from dnlnet.runs.explore import open_explorer

    explorer = open_explorer(
        ours,
        against=others,
        weights=weights,
        size=size,
        layers=chosen_layers,
        heads=chosen_heads,
        max_megabytes=max_megabytes,
        max_pixels=max_pixels,
    )
    from dnlnet.lens.show.explorer_app import launch

    typer.echo(f"starting; open http://127.0.0.1:{port} when ready (Ctrl-C stops it)")
    launch(explorer, port, browser)
