"""`dnlnet consistency`: overlap of attention with ground truth, as in Table 1 of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.options import BoundaryWidth, VoidEdges, Weights
from dnlnet.cli.terminal.outputs import writes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dnlnet.lens.measure.consistency import Average

    Table = Mapping[str, Mapping[str, Average | None]]


@writes("json", "picture")
def consistency(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Model files, run folders, names; or timm:NAME, torchvision:NAME, transformers:NAME.",
        ),
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the data set, for a transformer. Default: recognised by its folders."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split of the data set. Default: that of the recipe; for a transformer, val or test."),
    ] = None,
    weights: Weights = None,
    width: BoundaryWidth = 5,
    void_edges: VoidEdges = False,
    images: Annotated[int | None, typer.Option(min=1, max=1_000_000_000, help="Maximum number of images.")] = None,
    json: Annotated[
        Path | None, typer.Option(help="Also write the table, and every image's values, to this file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the table as bars into this file.")
    ] = None,
) -> None:
    """Measure how much attention lies on the query's class and on boundaries, as in Table 1 of the paper.

    The table shows the share of each query's pairwise attention on pixels of the query's own class and on boundaries,
    and the share of the unary attention on boundaries: exact over all queries, averaged over them and then over
    images, with the standard error over images. The row "random" is a uniform map. A transformer has one row per
    layer, the mean over its heads; dnlnet profile shows single heads, and the attention itself.

    Example: dnlnet consistency runs/nl runs/dnl --data ~/camvid --picture overlaps.png
    """
    from dnlnet.cli.terminal.early import require_folder, require_models
    from dnlnet.files import write_json

    require_models(models)
    require_folder(data)

    from dnlnet.runs.consistency import consistency as measure

    found = measure(
        models,
        data,
        data_set=data_set,
        split=split,
        weights=weights,
        width=width,
        void_edges=void_edges,
        limit=images,
    )
    print_overlaps(
        found.table(),
        f"{len(found.images)} images; mean ± standard error over images; boundary: nearer than {width} px "
        f"to a contour, edges of unlabelled pixels {'counted' if void_edges else 'not counted'}",
    )
    if json is not None:
        write_json(json, found.to_json())
        typer.echo(f"written: {json}")
    if picture is not None:
        found.save(picture)
        typer.echo(f"written: {picture}")


def print_overlaps(table: "Table", caption: str) -> None:
    """Print the averages of each row of a table of overlaps."""
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.lens.measure.consistency import STATISTICS

    print_table(
        "Overlaps of attention with the ground truth (Table 1 of the paper)",
        [
            {"attention": name}
            | {STATISTICS[key].replace("∩ ", "∩\n"): _cell(key, average) for key, average in row.items()}
            for name, row in table.items()
        ],
        caption,
    )


def _cell(statistic: str, average: "Average | None") -> str:
    if average is None:
        return "-"
    if statistic.endswith("void"):
        return f"{average.mean:.1%}"
    return f"{average.mean:.3f}" if average.error is None else f"{average.mean:.3f}±{average.error:.3f}"
