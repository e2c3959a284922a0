"""Read every file of a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from dnlnet.data.catalog import HOLDOUT, DataSet, find_data_set
from dnlnet.data.check import Report
from dnlnet.data.problems import Problem
from dnlnet.progress import BARS, Progress
from dnlnet.registry import data_sets
from dnlnet.runs.choose import recognise, say_division

_NAMED = 8  # classes in a message


def check_data(
    name: str,
    root: Path,
    splits: Sequence[str] = (),
    images: Path | None = None,
    *,
    progress: Progress = BARS,
) -> tuple[dict[str, Report], dict[str, str]]:
    """Check the splits of a data set. Return a report per split, and the reason for each missing split.

    Args:
        name: Name of the data set (see `recognised_name`).
        root: Folder of the data set, or a single annotation file if the format has one.
        splits: Splits to check. Default: all existing splits.
        images: Image folder of a single annotation file.
        progress: Progress observer.
    """
    known = data_sets()
    row = find_data_set({one: row for one, (_, row) in known.items()}, name)
    kind, _ = known[name]
    progress.say(f"opening {name} in {root}")  # a long list takes a minute to open
    if not splits and row.is_flat(root):
        say_division(row, root, HOLDOUT, progress)
    chosen, missing = _open(row, root, splits, images)
    reports = {split: kind.check_data(opened, progress) for split, opened in chosen.items()}
    if row.class_count is None and not row.splits:  # the folder itself defines the classes
        reports = {split: _with_empty_classes(report, split, root) for split, report in reports.items()}
    return reports, missing


def recognised_name(root: Path) -> str:
    """Return the name of the data set with the layout of a folder, or that opens single files like this one."""
    if root.is_file():
        return next(name for name, (_, row) in data_sets().items() if row.open_file is not None)
    return recognise(root)[1].name


def _with_empty_classes(report: Report, split: str, root: Path) -> Report:
    """Return the report of a training split with a problem if it has no example of a class."""
    amounts = report.contents().amounts
    empty = [repr(name) for name, amount in zip(report.class_names, amounts, strict=True) if not amount]
    if not split.startswith("train") or not empty or len(empty) == len(amounts):
        return report
    names = ", ".join(empty[:_NAMED]) + (f" and {len(empty) - _NAMED} more" if len(empty) > _NAMED else "")
    problem = Problem(root, f"{split} has no example of {names} to learn from")
    changed: Any = replace(cast("Any", report), problems=(*report.problems, problem))
    return cast("Report", changed)


def _open(
    row: DataSet[Any], root: Path, splits: Sequence[str], images: Path | None
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return the images or videos of each split, and the reason for each missing split."""
    if row.open_file is not None and root.is_file():
        if splits:
            raise ValueError(f"{root} is one file and has no splits; leave out --split")
        return {root.stem: row.open_file(root, images or root.parent)}, {}
    if images is not None:
        raise ValueError(f"--images is for a JSON file in COCO's format, but {row.name} {root} is none")
    if splits:
        return {split: row.open(root, split) for split in splits}, {}
    return row.open_all(root)
