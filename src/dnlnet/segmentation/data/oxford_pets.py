"""Oxford-IIIT Pet: a cat or a dog, and the background.

Trimaps hold 1 for the pet, 2 for the background and 3 for the border, a few pixels wide, which is ignored.
"""

from pathlib import Path

from dnlnet.data.classes import IGNORE, Classes
from dnlnet.data.decoders import index_labels
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, pair_listed
from dnlnet.errors import unknown

SPLITS = ("trainval", "test")
CLASSES = Classes(("background", "pet"), ((70, 90, 120), (230, 150, 60)))


def oxford_pets(root: Path, split: str) -> LabelledImages:
    """Open the images of a split, in the order of its list.

    Args:
        root: Folder with `images` and `annotations`.
        split: trainval or test.

    >>> oxford_pets(Path("pets"), "train")
    Traceback (most recent call last):
    ValueError: unknown split 'train'; did you mean 'trainval'? known: trainval, test
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    images = files_by_stem(root / "images", (".jpg", ".jpeg"))
    labels = files_by_stem(root / "annotations" / "trimaps", (".png",))
    pairs, problems = pair_listed(root / "annotations" / f"{split}.txt", images, labels)
    decode = index_labels({1: 1, 2: 0, 3: IGNORE}, expected="1 (pet), 2 (background), 3 (border)")
    return LabelledImages(f"oxford_pets {split}", CLASSES, pairs, decode, problems)
