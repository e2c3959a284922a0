"""`dnlnet data`: which data sets can be read, and whether a folder holds one without faults."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dnlnet.data.check import Report
    from dnlnet.data.labelled import LabelledImages
    from dnlnet.detection.data.check import InstanceReport
    from dnlnet.detection.data.objects import InstanceImages
    from dnlnet.video.data.check import VideoReport
    from dnlnet.video.data.videos import LabelledVideos

data = typer.Typer(help="List the data sets, and check the files of one.", no_args_is_help=True)

_BAR_WIDTH = 24
_SIZES_SHOWN = 6


@data.command("list")
def list_data_sets() -> None:
    """Show the data sets that can be read, with their splits and the folders they expect.

    Example: dnlnet data list
    """
    from dnlnet.cli.tables import print_table
    from dnlnet.recipes.catalog import DATA_SETS, INSTANCE_DATA_SETS, VIDEO_DATA_SETS, DataSet

    rows: list[DataSet[Any]] = [*DATA_SETS.values(), *INSTANCE_DATA_SETS.values(), *VIDEO_DATA_SETS.values()]
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
    """Read every image, label file and video of a data set; show what it holds and all that is wrong with it.

    Exit code 1 if anything is wrong. The folders that each data set expects: dnlnet data list

    Example: dnlnet data check cityscapes ~/cityscapes --split val
    """
    from dnlnet.cli.tables import write_json

    typer.echo(f"opening {name} in {directory}", err=True)  # which may take a minute, if its lists are long
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
) -> "tuple[Mapping[str, LabelledImages | InstanceImages | LabelledVideos], dict[str, str]]":
    """The images or videos of each split, and why others are not there."""
    from dnlnet.detection.data import coco
    from dnlnet.errors import unknown
    from dnlnet.recipes import catalog

    kinds: list[tuple[Mapping[str, Any], Callable[..., Any], Callable[..., Any]]] = [
        (catalog.DATA_SETS, catalog.open_data_set, catalog.open_all_splits),
        (catalog.INSTANCE_DATA_SETS, catalog.open_instance_set, catalog.open_all_instance_splits),
        (catalog.VIDEO_DATA_SETS, catalog.open_video_set, catalog.open_all_video_splits),
    ]
    kind = next((kind for kind in kinds if name in kind[0]), None)
    if kind is None:
        raise unknown("data set", name, [known for rows, _, _ in kinds for known in rows])
    rows, open_one, open_all = kind
    if rows is catalog.INSTANCE_DATA_SETS and directory.is_file():
        if split:
            raise ValueError(f"{directory} is one file and has no splits; leave out --split")
        return {directory.stem: coco.open_coco_file(directory, images or directory.parent)}, {}
    if images is not None:
        raise ValueError(f"--images is for a JSON file in COCO's format, but {name} {directory} is none")
    if split:
        return {one: open_one(name, directory, one) for one in split}, {}
    opened: tuple[Mapping[str, Any], dict[str, str]] = open_all(name, directory)
    return opened


def _read(
    chosen: "Mapping[str, LabelledImages | InstanceImages | LabelledVideos]",
) -> "dict[str, Report | InstanceReport | VideoReport]":
    from functools import partial

    from dnlnet.cli.progress import counting_progress
    from dnlnet.data.check import check
    from dnlnet.data.labelled import LabelledImages
    from dnlnet.detection.data.check import check_instances
    from dnlnet.video.data.check import check_videos
    from dnlnet.video.data.videos import LabelledVideos

    reports: dict[str, Report | InstanceReport | VideoReport] = {}
    with counting_progress() as progress:
        for split, images in chosen.items():
            advance = partial(progress.advance, progress.add_task(images.name, total=len(images)))
            if isinstance(images, LabelledImages):
                reports[split] = check(images, progress=advance)
            elif isinstance(images, LabelledVideos):
                reports[split] = check_videos(images, progress=advance)
            else:
                reports[split] = check_instances(images, progress=advance)
    return reports


@dataclass(frozen=True)
class _Contents:
    """What the table of a report shows: a bar for each class, columns, what is below, and lines after it."""

    title: str
    amounts: "Sequence[float]"
    columns: "dict[str, list[str]]"
    caption: str
    lines: "Sequence[str]" = ()


def _contents(report: "Report | InstanceReport | VideoReport") -> _Contents:
    from dnlnet.data.check import Report
    from dnlnet.video.data.check import VideoReport, summarise

    if isinstance(report, Report):
        shares = report.class_shares
        columns = {"share": [f"{share:.2%}" if share else "none" for share in shares]}
        return _Contents(_count(report.images, "image"), shares, columns, f"ignored: {report.ignored_share:.2%}")
    if isinstance(report, VideoReport):
        columns = {"videos": [str(count) if count else "none" for count in report.class_videos]}
        lines = [
            f"{name}: {values['least']:.1f} to {values['most']:.1f}, {values['median']:.1f} in the middle"
            for name, values in (("seconds", summarise(report.seconds)), ("frames a second", summarise(report.rates)))
            if values is not None
        ]
        caption = f"{len(report.seconds)} can be read"
        return _Contents(_count(report.videos, "video"), report.class_videos, columns, caption, lines)
    columns = {
        "objects": [str(count) if count else "none" for count in report.class_instances],
        "images": [str(count) if count else "none" for count in report.class_images],
    }
    reasons = [f"{reason} {count}" for reason, count in report.left_out.items()]
    lines = [f"not learnt from: {', '.join(reasons) or 'none'}"]
    caption = _count(sum(report.class_instances), "object")
    return _Contents(_count(report.images, "image"), report.class_instances, columns, caption, lines)


def _show(report: "Report | InstanceReport | VideoReport") -> None:
    from dnlnet.cli.tables import print_table

    contents = _contents(report)
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
        typer.echo(f"{report.name}: {contents.title}, no class")  # lists of which no line can be understood
    for line in contents.lines:
        typer.echo(line)
    sizes = [f"{width} x {height} ({count})" for (width, height), count in report.sizes.items()]
    more = f" and {len(sizes) - _SIZES_SHOWN} more" if len(sizes) > _SIZES_SHOWN else ""
    typer.echo(f"sizes (width x height): {', '.join(sizes[:_SIZES_SHOWN]) or 'none'}{more}")
    typer.echo(f"{_count(len(report.problems), 'problem')}{':' if report.problems else ''}")
    for problem in report.problems:
        typer.echo(f"  {problem}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
