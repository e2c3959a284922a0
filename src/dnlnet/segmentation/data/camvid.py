"""CamVid: street scenes from a driving car, with the 11 classes and the folders of SegNet's copy."""

from pathlib import Path

from dnlnet.data.classes import IGNORE, Classes
from dnlnet.data.decoders import index_labels
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, pair_files, pair_listed
from dnlnet.errors import unknown

CLASSES = Classes(
    (
        *("Sky", "Building", "Pole", "Road", "Pavement", "Tree"),
        *("SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist"),
    ),
    (
        *((128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0)),
        *((192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192)),
    ),
)

SPLITS = ("train", "val", "test")

_DECODE = index_labels({**{label: label for label in range(11)}, 11: IGNORE}, expected="0..10 or 11 (void)")


def camvid(root: Path, split: str) -> LabelledImages:
    """Open the images of a split: the names in its list file, or without one, all images in its folder.

    Args:
        root: Folder with `train`, `trainannot` and optionally `train.txt`, and the same for the other splits.
        split: train, val or test.

    >>> camvid(Path("camvid"), "trian")
    Traceback (most recent call last):
    ValueError: unknown split 'trian'; did you mean 'train'? known: train, val, test
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    images, labels = files_by_stem(root / split), files_by_stem(root / f"{split}annot", (".png",))
    list_file = root / f"{split}.txt"
    pairs, problems = pair_listed(list_file, images, labels) if list_file.exists() else pair_files(images, labels)
    return LabelledImages(f"camvid {split}", CLASSES, pairs, _DECODE, problems)
