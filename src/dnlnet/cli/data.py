"""`dnlnet data`: which data sets can be read, and whether a folder holds one without faults."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dnlnet.data.check import Report
    from dnlnet.data.check_coco import InstanceReport
    from dnlnet.data.labelled import LabelledImages
    from dnlnet.data.objects import InstanceImages

data = typer.Typer(help="List the data sets, and check the files of one.", no_args_is_help=True)

_BAR_WIDTH = 24
_SIZES_SHOWN = 6


@data.command("list")
def list_data_sets() -> None:
    """Show the data sets that can be read, with their splits and the folders they expect.

    Example: dnlnet data list
    """
    from dnlnet.cli.tables import print_table
    from dnlnet.data.catalog import DATA_SETS, INSTANCE_DATA_SETS, DataSet

    rows: list[DataSet[Any]] = [*DATA_SETS.values(), *INSTANCE_DATA_SETS.values()]
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
        typer.echo(f"  {row.name}: {row.layout}")  # not a cell of the table, which would cut off long paths


@data.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The data set, a name of: dnlnet data list.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Its folder; or one's own JSON file for coco.")],
    split: Annotated[list[str] | None, typer.Option(help="A split; may be repeated. Default: all there are.")] = None,
    images: Annotated[
        Path | None, typer.Option(help="The pictures of one's own JSON file. Default: its folder.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the report to this file.")] = None,
) -> None:
    """Read every image and label file of a data set; show what it holds and all that is wrong with it.

    Exit code 1 if anything is wrong. The folders that each data set expects: dnlnet data list

    Example: dnlnet data check cityscapes ~/cityscapes --split val
    """
    from dnlnet.cli.tables import write_json

    chosen, missing = _opened(name, directory, split, images)
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


def _opened(
    name: str, directory: Path, split: list[str] | None, images: Path | None
) -> "tuple[Mapping[str, LabelledImages | InstanceImages], dict[str, str]]":
    """The images of each split, and why others are not there."""
    from dnlnet.data import catalog, coco
    from dnlnet.errors import unknown

    of_objects = name in catalog.INSTANCE_DATA_SETS
    if not of_objects and name not in catalog.DATA_SETS:
        raise unknown("data set", name, [*catalog.DATA_SETS, *catalog.INSTANCE_DATA_SETS])
    if of_objects and directory.is_file():
        if split:
            raise ValueError(f"{directory} is one file and has no splits; leave out --split")
        return {directory.stem: coco.open_coco_file(directory, images or directory.parent)}, {}
    if images is not None:
        raise ValueError(f"--images is for a JSON file in COCO's format, but {name} {directory} is none")
    if split:
        open_one = catalog.open_instance_set if of_objects else catalog.open_data_set
        return {one: open_one(name, directory, one) for one in split}, {}
    return (catalog.open_all_instance_splits if of_objects else catalog.open_all_splits)(name, directory)


def _read(chosen: "Mapping[str, LabelledImages | InstanceImages]") -> "dict[str, Report | InstanceReport]":
    from functools import partial

    from dnlnet.cli.progress import counting_progress
    from dnlnet.data.check import check
    from dnlnet.data.check_coco import check_instances
    from dnlnet.data.labelled import LabelledImages

    reports: dict[str, Report | InstanceReport] = {}
    with counting_progress() as progress:
        for split, images in chosen.items():
            advance = partial(progress.advance, progress.add_task(images.name, total=len(images)))
            if isinstance(images, LabelledImages):
                reports[split] = check(images, progress=advance)
            else:
                reports[split] = check_instances(images, progress=advance)
    return reports


def _show(report: "Report | InstanceReport") -> None:
    from dnlnet.cli.tables import print_table
    from dnlnet.data.check import Report

    if isinstance(report, Report):
        amounts: Sequence[float] = report.class_shares
        columns = {"share": [f"{share:.2%}" if share else "none" for share in amounts]}
        caption = f"ignored: {report.ignored_share:.2%}"
    else:
        amounts = report.class_instances
        columns = {
            "objects": [str(count) if count else "none" for count in amounts],
            "images": [str(count) if count else "none" for count in report.class_images],
        }
        caption = _count(sum(report.class_instances), "object")
    largest = max(amounts) or 1
    rows = [
        {
            "class": index,
            "name": name,
            **{column: cells[index] for column, cells in columns.items()},
            "": "█" * round(_BAR_WIDTH * amounts[index] / largest),
        }
        for index, name in enumerate(report.class_names)
    ]
    print_table(f"{report.name}: {_count(report.images, 'image')}", rows, caption)
    if not isinstance(report, Report):
        reasons = [f"{reason} {count}" for reason, count in report.left_out.items()]
        typer.echo(f"not learnt from: {', '.join(reasons) or 'none'}")
    sizes = [f"{width} x {height} ({count})" for (width, height), count in report.sizes.items()]
    more = f" and {len(sizes) - _SIZES_SHOWN} more" if len(sizes) > _SIZES_SHOWN else ""
    typer.echo(f"sizes (width x height): {', '.join(sizes[:_SIZES_SHOWN]) or 'none'}{more}")
    typer.echo(f"{_count(len(report.problems), 'problem')}{':' if report.problems else ''}")
    for problem in report.problems:
        typer.echo(f"  {problem}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
