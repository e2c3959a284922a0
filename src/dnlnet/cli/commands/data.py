"""`dnlnet data`: readable data sets, and a check of their files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_data_set
from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import print_table

if TYPE_CHECKING:
    from dnlnet.data.check import Report

data = typer.Typer(name="data", help="List the data sets, or check the files of one.", no_args_is_help=True)

_BAR_WIDTH = 24
_SIZES_SHOWN = 6


@data.command("list")
def list_data_sets() -> None:
    """List the data sets with their splits and expected folders.

    Example: dnlnet data list
    """
    from dnlnet.registry import data_sets

    rows = [row for _, row in data_sets().values()]
    print_table(
        "Data sets",
        [
            {
                "name": row.name,
                "splits": ", ".join(row.splits) or "as in its folder",
                "classes": "-" if row.classes is None else len(row.classes),
            }
            for row in rows
        ],
    )
    typer.echo("Expected folders:")
    for row in rows:
        typer.echo(f"  {row.name}: {row.layout}")  # a table cell would break long paths


@data.command()
@writes("json")
def check(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] DIR",
            help="Folder of the data; for COCO's format, also a JSON file. Its layout shows the data set, unless you "
            "name one (see `dnlnet data list`).",
            autocompletion=complete_data_set,
        ),
    ],
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="SPLIT", help="Split to check. Repeat for several. Default: all existing splits."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the images in your JSON file. Default: the folder of the file."),
    ] = None,
    json: Json = None,
) -> None:
    """Read every image, label file and video of a data set, and report its contents and all problems.

    The exit code is 1 if there is any problem. dnlnet data list shows the expected folders.

    Example: dnlnet data check ~/my_images

    Example: dnlnet data check cityscapes ~/cityscapes --split val
    """
    from dnlnet.registry import data_sets
    from dnlnet.runs.check import check_data, recognised_name

    if len(given) > 2:
        raise ValueError(f"data check takes one folder, after the name of its data set; got {' '.join(given)}")
    directory = Path(given[-1])
    if len(given) == 1 and given[0] in data_sets() and not directory.exists():
        raise ValueError(f"give the folder of {given[0]} as well: dnlnet data check {given[0]} DIR")
    name = given[0] if len(given) == 2 else recognised_name(directory)
    reports, missing = check_data(name, directory, split or (), images)
    for number, report in enumerate(reports.values()):
        if number:
            typer.echo()
        _show(report)
    for one, reason in missing.items():
        typer.echo(f"{name} {one} is missing: {reason}")
    splits = {one: report.to_json() for one, report in reports.items()}
    write_result(json, {"data_set": name, "folder": str(directory), "splits": splits, "not_there": missing})
    own = not data_sets()[name][1].splits  # then the folder itself names its splits
    if any(report.problems for report in reports.values()) or (missing and own):
        raise typer.Exit(1)


def _show(report: "Report") -> None:
    from dnlnet.data.check import count_of, grouped

    contents = report.contents()
    largest = max(contents.amounts, default=0) or 1
    rows = [
        {
            "class": index,
            "name": name,
            **{column: cells[index] for column, cells in contents.columns.items()},
            "": "█" * round(_BAR_WIDTH * contents.amounts[index] / largest),
        }
        for index, name in enumerate(report.class_names)
    ]
    if rows:
        print_table(f"{report.name}: {contents.title}", rows, contents.caption)
    else:
        typer.echo(f"{report.name}: {contents.title}, no class")  # no line of its lists could be parsed
    for line in contents.lines:
        typer.echo(line)
    sizes = [f"{width} x {height} ({count})" for (width, height), count in report.sizes.items()]
    more = f" and {len(sizes) - _SIZES_SHOWN} more" if len(sizes) > _SIZES_SHOWN else ""
    typer.echo(f"sizes (width x height): {', '.join(sizes[:_SIZES_SHOWN]) or 'none'}{more}")
    typer.echo(f"{count_of(len(report.problems), 'problem')}{':' if report.problems else ''}")
    for line in grouped(report.problems):
        typer.echo(f"  {line}")
