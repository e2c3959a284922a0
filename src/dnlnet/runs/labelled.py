"""Data sets with a class for each pixel, for models without a recipe that names one."""

from collections.abc import Iterator
from pathlib import Path

from dnlnet.data.catalog import DataSet, find_data_set
from dnlnet.data.labelled import LabelledImages
from dnlnet.registry import pixel_data_sets

_TEST_SPLITS = ("val", "validation", "test")  # by preference


def labelled_data_set(root: Path, name: str | None) -> DataSet[LabelledImages]:
    """Return the data set with this name; by default the only one that has such folders."""
    if name is not None:
        return find_data_set(pixel_data_sets(), name)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    fitting = list(_fitting(root))
    if len(fitting) != 1:
        like = " and ".join(row.name for row in fitting) or "none of the known data sets"
        raise ValueError(
            f"{root}: looks like {like}; say which it is with --data-set, one of {', '.join(pixel_data_sets())} "
            "(dnlnet data list shows their folders)"
        )
    return fitting[0]


def open_split(row: DataSet[LabelledImages], root: Path, split: str | None) -> LabelledImages:
    """Open a split, by default one to test on. Raises if files are missing."""
    if split is not None:
        return row.open(root, split).require_complete()
    opened = row.open_all(root)[0]
    return opened[next((name for name in _TEST_SPLITS if name in opened), list(opened)[-1])].require_complete()


def _fitting(root: Path) -> Iterator[DataSet[LabelledImages]]:
    for row in pixel_data_sets().values():
        try:
            row.open_all(root)
        except (OSError, ValueError):
            continue
        yield row
