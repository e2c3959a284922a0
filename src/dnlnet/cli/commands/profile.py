"""`dnlnet profile`: the attention of every head of a model, in numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_data_set
from dnlnet.cli.terminal.options import (
    BoundaryWidth,
    Heads,
    Layers,
    LookModel,
    LookSize,
    VoidEdges,
    Weights,
    heads_of,
    layers_of,
)
from dnlnet.cli.terminal.outputs import writes

if TYPE_CHECKING:
    from dnlnet.lens.measure.consistency import Average
    from dnlnet.lens.measure.profile import HeadProfile
    from dnlnet.runs.profile import ModelProfile


@writes("json", "picture")
def profile(
    model: LookModel,
    pictures: Annotated[
        list[str] | None, typer.Argument(metavar="PICTURES...", help="Images, folders of images, or addresses.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of a data set with labelled pixels, to measure overlaps with its labels."
        ),
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the data set, such as camvid. Default: recognised by its folders.",
            autocompletion=complete_data_set,
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the data set. Default: val, or else test.")] = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: LookSize = None,
    images: Annotated[int | None, typer.Option(min=1, max=1_000_000_000, help="Maximum number of images.")] = None,
    width: BoundaryWidth = 5,
    void_edges: VoidEdges = False,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write all heads, and every image's values, to this file."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw heat maps of layers and heads into this file.")
    ] = None,
) -> None:
    """Measure the attention of each layer and head, of our models or of any transformer.

    The table shows how much of it is the same for all queries (unary share), how far queries differ (dependence),
    over how many positions it spreads, and how much the strongest position and prefix tokens take. With a labelled
    data set, it also shows how much of each term, and of the attention itself, lies within the query's class and on
    boundaries, as in Table 1 of the paper. Values are means over images with standard errors. Each layer has one row,
    the mean over its heads; --heads all shows each head.

    Example: dnlnet profile timm:vit_small_patch14_dinov2 cat.jpg street.jpg --picture profile.png

    Example: dnlnet profile timm:vit_small_patch14_dinov2 --data ~/camvid --json profile.json
    """
    chosen_layers, chosen_heads = layers_of(layers), heads_of(heads)

    from dnlnet.cli.terminal.early import require_folder, require_models
    from dnlnet.cli.terminal.inputs import open_inputs
    from dnlnet.cli.terminal.problems import end_with
    from dnlnet.files import write_json

    require_models([model])
    require_folder(data)
    with open_inputs(pictures or ()) as inputs:
        from dnlnet.runs.profile import profile as profile_model

        found = profile_model(
            model,
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
        write_json(json, content | found.profile.to_json())
        typer.echo(f"written: {json}")
    if found.images and picture is not None:
        found.save(picture)
        typer.echo(f"written: {picture}")
    end_with([inputs.named(problem) for problem in found.problems], found.count)


def _print(found: "ModelProfile", boundary: str, *, every_head: bool) -> None:
    """Print the table of statistics, and with labels the one of overlaps."""
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
        "Overlaps with the ground truth (Table 1 of the paper, and those of the attention itself)",
        [*(_row(row, shown) for row in rows), uniform],
        f"{over}; attention on condition that it falls on the image; boundary: {boundary}",
    )


def _row(found: "HeadProfile", names: "dict[str, str] | list[str]") -> dict[str, str]:
    layer = found.layer if found.head is None else f"{found.layer} {found.head}"
    return {"layer": layer} | {_heading(name): _cell(found.average(name)) for name in names}


def _heading(name: str) -> str:
    """Return the heading of a column.

    >>> _heading("unary_share")
    'unary\\nshare'
    """
    return name.replace("_", "\n")


def _cell(average: "Average | None") -> str:
    """Format a mean and its standard error so briefly that five columns fit into a narrow terminal."""
    if average is None:
        return "-"
    digits = 1 if average.mean > 1.5 else 3
    if average.error is None:
        return f"{average.mean:.{digits}f}"
    mean, error = (
        f"{value:.{digits}f}".removeprefix("0" if digits == 3 else "") for value in (average.mean, average.error)
    )
    return f"{mean}±{error}"
