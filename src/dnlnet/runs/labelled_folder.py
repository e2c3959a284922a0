"""Data set folders with a class per pixel, for models whose recipe names no data set."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.catalog import DataSet, find_data_set
from dnlnet.data.decoders import Labels
from dnlnet.data.labelled import LabelledImages
from dnlnet.registry import pixel_data_sets

_TEST_SPLITS = ("val", "validation", "test")  # preferred first


@dataclass(frozen=True)
class LabelledFolder:
    """Folder of a data set with a class per pixel."""

    data_set: DataSet[LabelledImages]
    root: Path

    @cached_property
    def splits(self) -> dict[str, LabelledImages]:
        """All existing splits, opened once."""
        return self.data_set.open_all(self.root)[0]

    def split(self, name: str | None = None) -> LabelledImages:
        """Return a split. Default: a test split. Raises if files are missing."""
        if name is not None:
            return self.data_set.open(self.root, name).require_complete()
        name = next((name for name in _TEST_SPLITS if name in self.splits), list(self.splits)[-1])
        return self.splits[name].require_complete()


def find_labelled(root: Path, name: str | None) -> LabelledFolder:
    """Open the folder as the named data set. Default: the only data set with this layout."""
    if name is not None:
        return LabelledFolder(find_data_set(pixel_data_sets(), name), root)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    fitting = [folder for row in pixel_data_sets().values() if _opens(folder := LabelledFolder(row, root))]
    if len(fitting) != 1:
        like = " and ".join(folder.data_set.name for folder in fitting) or "none of the known data sets"
        raise ValueError(
            f"{root}: looks like {like}; say which it is with --data-set, one of {', '.join(pixel_data_sets())} "
            "(dnlnet data list shows their folders)"
        )
    return fitting[0]


def read_labelled(images: LabelledImages, index: int) -> tuple[NDArray[np.uint8], Labels]:
    """Return the pixels (H, W, 3) and the labels (H, W) of an image."""
    image, raw = images.open(index)
    return np.asarray(image), images.decoded(index, raw)


def _opens(folder: LabelledFolder) -> bool:
    try:
        return bool(folder.splits)
    except (OSError, ValueError):
        return False
