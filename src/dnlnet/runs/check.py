"""Read every file of a data set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dnlnet.data.catalog import DataSet, find_data_set
from dnlnet.data.check import Report
from dnlnet.progress import BARS, Progress
from dnlnet.registry import data_sets


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
        name: Name of the data set.
        root: Folder of the data set, or a single annotation file if the format has one.
        splits: Splits to check. Default: all existing splits.
        images: Image folder of a single annotation file.
        progress: Progress observer.
    """
    progress.say(f"opening {name} in {root}")  # a long list takes a minute to open
    known = data_sets()
    row = find_data_set({one: row for one, (_, row) in known.items()}, name)
    kind, _ = known[name]
    chosen, missing = _open(row, root, splits, images)
    return {split: kind.check_data(opened, progress) for split, opened in chosen.items()}, missing


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
