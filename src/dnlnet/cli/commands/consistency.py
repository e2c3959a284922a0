"""`dnlnet consistency`: overlaps of attention with the query's class and with boundaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.inputs import open_models
from dnlnet.cli.terminal.options import BoundaryWidth, Data, DataSetName, FirstImages, Json, VoidEdges, Weights
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.lens.measure import BOUNDARY_WIDTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dnlnet.lens.measure.consistency import Average

    Table = Mapping[str, Mapping[str, Average | None]]


@writes("json", "picture")
def consistency(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Model files, run folders, bundled models or names on the Hugging Face hub; or transformers: "
            "timm:NAME, torchvision:NAME, transformers:NAME.",
        ),
    ],
    data: Data = None,
    data_set: DataSetName = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT",
            help="Split to measure on. Default: the recipe's test split; for a transformer, val or test.",
        ),
    ] = None,
    weights: Weights = None,
    width: BoundaryWidth = BOUNDARY_WIDTH,
    void_edges: VoidEdges = False,
    images: FirstImages = None,
    json: Json = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the table as bars into this file.")
    ] = None,
) -> None:
    """Measure how much attention lies on the query's class and on boundaries, as in Table 1 of the paper.

    The table shows which share of each query's pairwise attention lies on pixels of its own class and on boundaries,
    and which share of the unary attention lies on boundaries. Values are exact over all queries of an image, and
    averaged over images with standard errors. The row "random" is a uniform map. A transformer has one row per layer,
    the mean over its heads; dnlnet profile shows each head.

    Example: dnlnet consistency runs/nl runs/dnl --data ~/camvid --picture overlaps.png
    """

    opened = open_models(models)

    from dnlnet.lens.show.panels import save_figure
    from dnlnet.runs.consistency import consistency as measure

    found = measure(
        opened,
        data,
        data_set=data_set,
        split=split,
        weights=weights,
        width=width,
        void_edges=void_edges,
        limit=images,
    )
    count = len(found.images)
    over = "1 image" if count == 1 else f"{count} images; mean ± standard error over images"
    print_overlaps(
        found.table(),
        f"{over}; boundary: nearer than {width} px to a contour, edges of unlabelled pixels "
        f"{'counted' if void_edges else 'not counted'}",
    )
    write_result(json, found.to_json())
    if picture is not None:
        save_figure(found.plot(), picture)
        typer.echo(f"written: {picture}")


def print_overlaps(table: "Table", caption: str) -> None:
    """Print a table of overlaps."""
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.lens.measure.consistency import TABLE_1

    print_table(
        "Overlaps of attention with the ground truth (Table 1 of the paper)",
        [
            {"attention": name}
            | {TABLE_1[key].replace("∩ ", "∩\n"): _cell(key, average) for key, average in row.items()}
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
