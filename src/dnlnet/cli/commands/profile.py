"""`dnlnet profile`: statistics of every attention head of a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.inputs import end_with, open_inputs, open_models
from dnlnet.cli.terminal.options import (
    AnyModel,
    BoundaryWidth,
    DataSetName,
    FirstImages,
    Heads,
    ImageSize,
    Json,
    Layers,
    OptionalInputs,
    VoidEdges,
    Weights,
    parse_heads,
    parse_layers,
)
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.lens.measure import BOUNDARY_WIDTH

if TYPE_CHECKING:
    from dnlnet.lens.measure.consistency import Average
    from dnlnet.lens.measure.profile import HeadProfile
    from dnlnet.runs.profile import ModelProfile


@writes("json", "picture")
def profile(
    model: AnyModel,
    pictures: OptionalInputs = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of a labelled data set, to measure overlaps with.")
    ] = None,
    data_set: DataSetName = None,
    split: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="Split of the data set. Default: val, or else test.")
    ] = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: ImageSize = None,
    images: FirstImages = None,
    width: BoundaryWidth = BOUNDARY_WIDTH,
    void_edges: VoidEdges = False,
    json: Json = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw heat maps of layers and heads into this file.")
    ] = None,
) -> None:
    """Measure what the attention of each layer and head does, in our models or in any transformer.

    The statistics are the share of the logits' variance that all queries have in common (unary share), the distance
    of a query's attention from the mean (dependence), the number of positions that attention spreads over, and the
    shares of the strongest position and of prefix tokens. A labelled data set adds how much attention lies within the
    query's class and on boundaries, as in Table 1 of the paper.

    Values are means over images with standard errors, one row per layer (the mean over its heads); --heads all shows
    each head.

    Example: dnlnet profile timm:vit_small_patch14_dinov2 cat.jpg street.jpg --picture profile.png

    Example: dnlnet profile timm:vit_small_patch14_dinov2 --data ~/camvid --json profile.json
    """
    chosen_layers, chosen_heads = parse_layers(layers), parse_heads(heads)

    (ours,) = open_models([model])
    with open_inputs(pictures or ()) as inputs:
        from dnlnet.runs.profile import profile as profile_model

        found = profile_model(
            ours,
            inputs.paths,
            data=data,
            data_set=data_set,
            split=split,
            weights=weights,
            size=size,
            layers=chosen_layers,
            head=chosen_heads if isinstance(chosen_heads, int) else None,
            limit=images,
            width=width,
            void_edges=void_edges,
            progress=inputs.bars(),
        )
    if found.images:
        counted = (
            f"nearer than {width} px to a contour, edges of unlabelled pixels {'' if void_edges else 'not '}counted"
        )
        _print(found, counted, every_head=chosen_heads not in (None, "mean"))
    if found.images and json is not None:
        content = {
            "model": found.title,
            "weights": None if weights is None else weights.name,
            "data": found.data,
            "width": width,
            "void_edges": void_edges,
            "images": [inputs.named(image) for image in found.images],
        }
        write_result(json, content | found.profile.to_json())
    if found.images and picture is not None:
        from dnlnet.lens.show.panels import save_figure

        save_figure(found.plot(), picture)
        typer.echo(f"written: {picture}")
    end_with([inputs.named(problem) for problem in found.problems], found.count)


def _print(found: "ModelProfile", boundary: str, *, every_head: bool) -> None:
    """Print the table of statistics and, with labels, the table of overlaps."""
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.lens.measure.profile import OVERLAPS
    from dnlnet.lens.measure.statistics import STATISTICS

    rows = list(found.profile) if every_head else found.profile.layers()
    over = found.over + ("; mean ± standard error over them" if len(found.images) > 1 else "")
    print_table(f"Attention of {found.title}", [_row(row, STATISTICS) for row in rows], f"{over}; all tokens")
    if found.data is None:
        return
    shown = [name for name in OVERLAPS if not name.startswith("uniform")]
    uniform = {"layer": "uniform"} | {name: "" for name in _row(rows[0], shown) if name != "layer"}
    for region in ("within", "boundary"):
        average = rows[0].average(f"uniform_{region}")
        uniform[_heading(f"attention_{region}")] = _cell(average)
    print_table(
        "Overlaps with the ground truth, of each term (Table 1 of the paper) and of the whole attention",
        [*(_row(row, shown) for row in rows), uniform],
        f"{over}; of the attention that falls on the image; boundary: {boundary}",
    )


def _row(found: "HeadProfile", names: "dict[str, str] | list[str]") -> dict[str, str]:
    layer = found.layer if found.head is None else f"{found.layer} {found.head}"
    return {"layer": layer} | {_heading(name): _cell(found.average(name)) for name in names}


def _heading(name: str) -> str:
    """Return the heading of a column, one word per line.

    >>> _heading("unary_share")
    'unary\\nshare'
    """
    return name.replace("_", "\n")


def _cell(average: "Average | None") -> str:
    """Format a mean and its standard error so that five columns fit into 80 characters."""
    if average is None:
        return "-"
    digits = 1 if average.mean > 1.5 else 3
    if average.error is None:
        return f"{average.mean:.{digits}f}"
    mean, error = (
        f"{value:.{digits}f}".removeprefix("0" if digits == 3 else "") for value in (average.mean, average.error)
    )
    return f"{mean}±{error}"
