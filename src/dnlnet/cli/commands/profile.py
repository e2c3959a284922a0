"""`dnlnet profile`: what every head of a model does, in numbers."""

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
    from dnlnet.runs.profile import Profiled


@writes("json", "picture")
def profile(
    model: LookModel,
    pictures: Annotated[
        list[str] | None, typer.Argument(metavar="PICTURES...", help="Pictures, folders of them, or addresses.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of a data set with labelled pixels: overlaps with its labels are measured."
        ),
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which data set that is, such as camvid. Default: recognised by its folder.",
            autocompletion=complete_data_set,
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of the data set. Default: val, or else test.")] = None,
    weights: Weights = None,
    layers: Layers = None,
    heads: Heads = None,
    size: LookSize = None,
    images: Annotated[
        int | None, typer.Option(min=1, max=1_000_000_000, help="Use only the first N pictures.")
    ] = None,
    width: BoundaryWidth = 2,
    void_edges: VoidEdges = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write all heads, and every picture's values, here.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw heat maps of layers and heads into this file.")
    ] = None,
) -> None:
    """Measure what the attention of each layer and head does: of our models, or of any transformer.

    How much of it is the same for all queries (unary share), how far queries differ (dependence), over how many
    positions it spreads, and what the strongest one and prefix tokens take. With a labelled data set: how much lies
    within the query's class and on boundaries, as in Table 1 of the paper, of each term and of the attention itself.
    Means over pictures with standard errors. One row for each layer, the mean over its heads; --heads all shows each.

    Example: dnlnet profile timm:vit_small_patch14_dinov2 cat.jpg street.jpg --picture profile.png

    Example: dnlnet profile timm:vit_small_patch14_dinov2 --data ~/camvid --json profile.json
    """
    chosen_layers, chosen_heads = layers_of(layers), heads_of(heads)

    from dnlnet.cli.terminal.early import require_folder, require_models
    from dnlnet.cli.terminal.inputs import open_inputs
    from dnlnet.cli.terminal.problems import end_with, say
    from dnlnet.cli.terminal.progress import counting_progress
    from dnlnet.files import write_json

    require_models([model])
    require_folder(data)
    with open_inputs(pictures or ()) as inputs:
        from dnlnet.runs.profile import profile_model

        with counting_progress() as progress:
            task = progress.add_task("looking", total=None, visible=False)
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
                images=images,
                width=width,
                void_edges=void_edges,
                report=lambda text: say(inputs.named(text)),
                start=lambda count: progress.update(task, total=count, visible=True),
                advance=lambda: progress.advance(task),
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
        from dnlnet.lens.show.panels import save_figure
        from dnlnet.lens.show.profile_figure import profile_figure

        save_figure(profile_figure(found.profile, f"{found.title}, mean over {_pictures(found)}"), picture)
        typer.echo(f"written: {picture}")
    end_with([inputs.named(problem) for problem in found.problems], found.count)


def _print(found: "Profiled", boundary: str, *, every_head: bool) -> None:
    """The tables: statistics, and with labels overlaps."""
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.lens.measure.profile import OVERLAPS
    from dnlnet.lens.measure.statistics import STATISTICS

    rows = list(found.profile) if every_head else found.profile.layers()
    over = _pictures(found) + ("; mean ± standard error over them" if len(found.images) > 1 else "")
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
        f"{over}; attention on condition that it falls on the picture; boundary: {boundary}",
    )


def _pictures(found: "Profiled") -> str:
    count = len(found.images)
    return f"{count} {'picture' if count == 1 else 'pictures'}{f' of {found.data}' if found.data else ''}"


def _row(found: "HeadProfile", names: "dict[str, str] | list[str]") -> dict[str, str]:
    layer = found.layer if found.head is None else f"{found.layer} {found.head}"
    return {"layer": layer} | {_heading(name): _cell(found.average(name)) for name in names}


def _heading(name: str) -> str:
    """The heading of a column.

    >>> _heading("unary_share")
    'unary\\nshare'
    """
    return name.replace("_", "\n")


def _cell(average: "Average | None") -> str:
    """A mean and its standard error in few letters: five such columns fit into a narrow terminal."""
    if average is None:
        return "-"
    digits = 1 if average.mean > 1.5 else 3
    if average.error is None:
        return f"{average.mean:.{digits}f}"
    mean, error = (
        f"{value:.{digits}f}".removeprefix("0" if digits == 3 else "") for value in (average.mean, average.error)
    )
    return f"{mean}±{error}"
