"""Cityscapes: street scenes of 50 cities in 19 evaluated classes (https://www.cityscapes-dataset.com)."""

from pathlib import Path

from dnlnet.data.classes import IGNORE, Classes
from dnlnet.data.decoders import index_labels
from dnlnet.data.labelled import LabelledImages, Pair, pair_files
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown

CLASSES = Classes(
    (
        *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
        *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
    ),
    (
        *((128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153), (153, 153, 153)),
        *((250, 170, 30), (220, 220, 0), (107, 142, 35), (152, 251, 152), (70, 130, 180), (220, 20, 60)),
        *((255, 0, 0), (0, 0, 142), (0, 0, 70), (0, 60, 100), (0, 80, 100), (0, 0, 230), (119, 11, 32)),
    ),
)

# ID of each class in the label files, and in files for the benchmark server.
LABEL_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)

# split -> folders, each with the kind of its labels
SPLITS = {
    "train": (("train", "gtFine"),),
    "val": (("val", "gtFine"),),
    "trainval": (("train", "gtFine"), ("val", "gtFine")),
    "coarse": (("train_extra", "gtCoarse"),),
}

_NOT_COUNTED = dict.fromkeys((*range(34), 255), IGNORE)  # 255: the licence plate's ID of -1 in 8 bits
_DECODE = index_labels(
    {**_NOT_COUNTED, **{number: label for label, number in enumerate(LABEL_IDS)}},
    expected="an id of the labelIds files: 0..33 or 255",
)


def cityscapes(root: Path, split: str) -> LabelledImages:
    """Open the images of a split. Labels are fine, except in `coarse` (train_extra).

    Args:
        root: Folder with `leftImg8bit` and `gtFine` or `gtCoarse`.
        split: train, val, trainval or coarse.

    >>> CLASSES.names[LABEL_IDS.index(26)]
    'car'
    >>> cityscapes(Path("cityscapes"), "vall")
    Traceback (most recent call last):
    ValueError: unknown split 'vall'; did you mean 'val'? known: train, val, trainval, coarse
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    pairs: list[Pair] = []
    problems: list[Problem] = []
    for folder, kind in SPLITS[split]:
        images = _by_city(root / "leftImg8bit" / folder, "_leftImg8bit.png")
        labels = _by_city(root / kind / folder, f"_{kind}_labelIds.png")
        found, missing = pair_files(images, labels)
        pairs += found
        problems += missing
    return LabelledImages(f"cityscapes {split}", CLASSES, pairs, _DECODE, problems)


def _by_city(folder: Path, ending: str) -> dict[str, Path]:
    """Return the files with this ending. Keys are the city and the name without the ending."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    files = sorted(folder.glob(f"*/*{ending}"))
    return {f"{path.parent.name}/{path.name.removesuffix(ending)}": path for path in files}
