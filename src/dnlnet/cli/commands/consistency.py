"""`dnlnet consistency`: how much of the attention lies within the query's class, and how much on boundaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.options import BoundaryWidth, VoidEdges, Weights
from dnlnet.cli.terminal.outputs import writes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
            metavar="NAME", help="For a transformer: which data set that is. Default: recognised by its folder."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Default: the one the recipe is tested on; for a transformer, val or test.")
    ] = None,
    weights: Weights = None,
    width: BoundaryWidth = 5,
    void_edges: VoidEdges = False,
    images: Annotated[int | None, typer.Option(min=1, max=1_000_000_000, help="Use only the first N images.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the table, and every image's values, here.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the table as bars into this file.")
    ] = None,
) -> None:
    """Measure how much attention lies on the query's class and on boundaries, as in Table 1 of the paper.

    The share of each query's pairwise attention on pixels of the query's own class and on boundaries, and the share
    of the unary attention on boundaries; exact over all queries, averaged over them and then over images, with the
    standard error over images. The row "random" is a uniform map. A transformer has a row for each layer, the mean
    over its heads; dnlnet profile shows them one by one, and the attention itself.

    Example: dnlnet consistency runs/nl runs/dnl --data ~/camvid --picture overlaps.png
    """
    from dnlnet.cli.terminal.early import require_folder, require_models
    from dnlnet.cli.terminal.progress import counting_progress
    from dnlnet.files import write_json

    require_models(models)
    require_folder(data)

    from dnlnet.lens.measure.consistency import overlaps_json
    from dnlnet.lens.show.consistency_figure import consistency_figure
    from dnlnet.lens.show.panels import save_figure
    from dnlnet.runs.consistency import measure_consistency

    with counting_progress() as progress:

        def start(name: str, count: int) -> "Callable[[], None]":
            task = progress.add_task(name, total=count)
            return lambda: progress.advance(task)

        found = measure_consistency(
            models,
            data,
            data_set=data_set,
            split=split,
            weights=weights,
            width=width,
            void_edges=void_edges,
            images=images,
            start=start,
        )
    table = found.table()
    print_overlaps(
        table,
        f"{len(found.images)} images; mean ± standard error over images; boundary: nearer than {width} px "
        f"to a contour, edges of unlabelled pixels {'counted' if void_edges else 'not counted'}",
    )
    if json is not None:
        content = {
            "width": width,
            "void_edges": void_edges,
            "models": {title: str(path) for title, path in found.models.items()},
            "rows": overlaps_json(table),
            "images": [
                {"image": image} | {row: vars(values[number]) for row, values in found.rows.items()}
                for number, image in enumerate(found.images)
            ],
        }
        write_json(json, content)
        typer.echo(f"written: {json}")
    if picture is not None:
        save_figure(consistency_figure(table), picture)
        typer.echo(f"written: {picture}")


def print_overlaps(table: "Table", caption: str) -> None:
    """The averages of each row of a table of overlaps."""
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
