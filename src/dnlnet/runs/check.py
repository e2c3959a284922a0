"""Read every file of a data set."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dnlnet.data.catalog import DataSet, find_data_set
from dnlnet.data.check import Report
from dnlnet.registry import data_sets


def check_data(
    name: str,
    root: Path,
    splits: Sequence[str] = (),
    images: Path | None = None,
    start: Callable[[str, int], Callable[[], None]] = lambda name, count: lambda: None,
) -> tuple[dict[str, Report], dict[str, str]]:
    """What each split of a data set holds, and for each split that is not there, why.

    Args:
        name: of the data set.
        root: its folder, or a single file where the format has one.
        splits: default: all there are.
        images: folder of the pictures of a single file.
        start: called with the name of each split and the number of its files; gives what is called after each of
            them.
    """
    known = data_sets()
    row = find_data_set({one: row for one, (_, row) in known.items()}, name)
    kind, _ = known[name]
    chosen, missing = _open(row, root, splits, images)
    reports = {split: kind.check_data(opened, start(opened.name, len(opened))) for split, opened in chosen.items()}
    return reports, missing


def _open(
    row: DataSet[Any], root: Path, splits: Sequence[str], images: Path | None
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The images or videos of each split, and why others are not there."""
    if row.open_file is not None and root.is_file():
        if splits:
            raise ValueError(f"{root} is one file and has no splits; leave out --split")
        return {root.stem: row.open_file(root, images or root.parent)}, {}
    if images is not None:
        raise ValueError(f"--images is for a JSON file in COCO's format, but {row.name} {root} is none")
    if splits:
        return {split: row.open(root, split) for split in splits}, {}
    return row.open_all(root)
