"""`dnlnet data`: which data sets can be read, and whether a folder holds one without faults."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dnlnet.data.check import Report
    from dnlnet.data.labelled import LabelledImages

data = typer.Typer(help="List the data sets, and check the files of one.", no_args_is_help=True)

_BAR_WIDTH = 24
_SIZES_SHOWN = 6


@data.command("list")
def list_data_sets() -> None:
    """Show the data sets that can be read, with their splits and the folders they expect.

    Example: dnlnet data list
    """
    from dnlnet.cli.tables import print_table
    from dnlnet.data.catalog import DATA_SETS

    print_table(
        "Data sets",
        [
            {
                "name": row.name,
                "splits": ", ".join(row.splits) or "as in images/",
                "classes": "-" if row.classes is None else len(row.classes),
            }
            for row in DATA_SETS.values()
        ],
    )
    typer.echo("Expected folders:")
    for row in DATA_SETS.values():
        typer.echo(f"  {row.name}: {row.layout}")  # not a cell of the table, which would cut off long paths


@data.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The data set, a name of: dnlnet data list.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Its folder.")],
    split: Annotated[list[str] | None, typer.Option(help="A split; may be repeated. Default: all there are.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the report to this file.")] = None,
) -> None:
    """Read every image and label file of a data set; show what it holds and all that is wrong with it.

    Exit code 1 if anything is wrong. The folders that each data set expects: dnlnet data list

    Example: dnlnet data check cityscapes ~/cityscapes --split val
    """
    from dnlnet.cli.tables import write_json
    from dnlnet.data.catalog import open_all_splits, open_data_set

    missing: dict[str, str] = {}
    if split:
        chosen = {one: open_data_set(name, directory, one) for one in split}
    else:
        chosen, missing = open_all_splits(name, directory)
    reports = _read(chosen)
    for report in reports.values():
        _show(report)
    for one, reason in missing.items():
        typer.echo(f"{name} {one} is not there: {reason}")
    if json is not None:
        splits = {one: report.to_json() for one, report in reports.items()}
        write_json(json, {"data_set": name, "folder": str(directory), "splits": splits, "not_there": missing})
        typer.echo(f"written: {json}")
    if any(report.problems for report in reports.values()):
        raise typer.Exit(1)


def _read(chosen: "dict[str, LabelledImages]") -> "dict[str, Report]":
    from functools import partial

    from dnlnet.cli.progress import counting_progress
    from dnlnet.data.check import check

    reports = {}
    with counting_progress() as progress:
        for split, images in chosen.items():
            task = progress.add_task(images.name, total=len(images))
            reports[split] = check(images, progress=partial(progress.advance, task))
    return reports


def _show(report: "Report") -> None:
    from dnlnet.cli.tables import print_table

    largest = max(report.class_shares) or 1
    rows = [
        {
            "class": index,
            "name": name,
            "share": f"{share:.2%}" if share else "none",
            "": "█" * round(_BAR_WIDTH * share / largest),
        }
        for index, (name, share) in enumerate(zip(report.class_names, report.class_shares, strict=True))
    ]
    print_table(f"{report.name}: {_count(report.images, 'image')}", rows, f"ignored: {report.ignored_share:.2%}")
    sizes = [f"{width} x {height} ({count})" for (width, height), count in report.sizes.items()]
    more = f" and {len(sizes) - _SIZES_SHOWN} more" if len(sizes) > _SIZES_SHOWN else ""
    typer.echo(f"sizes (width x height): {', '.join(sizes[:_SIZES_SHOWN]) or 'none'}{more}")
    typer.echo(f"{_count(len(report.problems), 'problem')}{':' if report.problems else ''}")
    for problem in report.problems:
        typer.echo(f"  {problem}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
