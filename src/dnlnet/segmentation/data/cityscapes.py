"""Cityscapes: street scenes of 50 cities, 19 classes that count (https://www.cityscapes-dataset.com)."""

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

# The id of each class in the label files, and in the files that the benchmark's server takes.
LABEL_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)

# split -> its folders, each with the kind of its labels
SPLITS = {
    "train": (("train", "gtFine"),),
    "val": (("val", "gtFine"),),
    "trainval": (("train", "gtFine"), ("val", "gtFine")),
    "coarse": (("train_extra", "gtCoarse"),),
}

_NOT_COUNTED = dict.fromkeys((*range(34), 255), IGNORE)  # 255: the licence plate's id of -1 in eight bits
_DECODE = index_labels(
    {**_NOT_COUNTED, **{number: label for label, number in enumerate(LABEL_IDS)}},
    expected="an id of the labelIds files: 0..33 or 255",
)


def cityscapes(root: Path, split: str) -> LabelledImages:
    """The images of a split, with fine labels; those of `coarse` (train_extra) with coarse ones.

    Args:
        root: the folder of `leftImg8bit` and `gtFine` or `gtCoarse`.
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
    """The files of this ending by city and name without it."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    files = sorted(folder.glob(f"*/*{ending}"))
    return {f"{path.parent.name}/{path.name.removesuffix(ending)}": path for path in files}
