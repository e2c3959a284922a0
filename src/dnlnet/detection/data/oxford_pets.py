"""Oxford-IIIT Pet as a detection data set: one cat or dog per image.

Each line of a list holds a file name, a breed, a species (1 cat, 2 dog) and a number within the breed. Trimaps hold 1
for the pet, 2 for the background and 3 for the border, a few pixels wide. The mask is the pet without its border; the
box bounds both. Images whose trimap has no pet are left out.
"""

# H, W size of the image

from pathlib import Path

import numpy as np

from dnlnet.data.check import collecting
from dnlnet.data.classes import Classes, distinct_colours
from dnlnet.data.decoders import Labels, index_labels
from dnlnet.data.files import composed, text_lines
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, listed_stem, pair_listed
from dnlnet.data.problems import Problem
from dnlnet.detection.data.objects import AnnotatedImage, Instance, InstanceImages
from dnlnet.detection.data.outlines import encoded
from dnlnet.errors import shown, unknown

SPLITS = ("trainval", "test")
CLASSES = Classes(("cat", "dog"), distinct_colours(2), (1, 2))
_PET, _BACKGROUND, _BORDER = 1, 2, 3
_EMPTY = "images with a trimap without a pet"  # the published data has one, which shows two dogs


def oxford_pets(root: Path, split: str) -> InstanceImages:
    """Open the images of a split, in the order of its list. Reads all trimaps.

    Args:
        root: Folder with `images` and `annotations`.
        split: trainval or test.

    >>> oxford_pets(Path("pets"), "train")
    Traceback (most recent call last):
    ValueError: unknown split 'train'; did you mean 'trainval'? known: trainval, test
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    name, lists = f"oxford_pets_objects {split}", root / "annotations" / f"{split}.txt"
    images = files_by_stem(root / "images", (".jpg", ".jpeg"))
    trimaps = files_by_stem(root / "annotations" / "trimaps", (".png",))
    pairs, problems = pair_listed(lists, images, trimaps)
    values = {value: value for value in (_PET, _BACKGROUND, _BORDER)}
    decode = index_labels(values, expected="1 (pet), 2 (background), 3 (border)")
    labelled = LabelledImages(name, CLASSES, pairs, decode)
    species, faults = _species(lists)
    problems += faults
    annotated = []
    for index, pair in enumerate(pairs):
        if (label := species.get(composed(pair.image.stem))) is not None:
            with collecting(problems):
                annotated.append(_annotated(labelled, index, label))
    known = [image for image in annotated if image.instances]
    left_out = {_EMPTY: len(annotated) - len(known)} if len(known) < len(annotated) else {}
    return InstanceImages(name, CLASSES, known, problems, left_out, boxes_fit=False)


def _species(path: Path) -> tuple[dict[str, int], list[Problem]]:
    """Return the species of each image in a list, and a problem for each line without a valid one."""
    found: dict[str, int] = {}
    problems = []
    for number, line in text_lines(path):
        name, *columns = line.split()
        given = columns[1] if len(columns) > 1 else None
        if given in ("1", "2"):
            found.setdefault(listed_stem(name), int(given))
        else:
            what = "has no species" if given is None else f"gives the species {shown(given)}"
            text = f"line {number} {what} in its third column; expected 1 (cat) or 2 (dog)"
            problems.append(Problem(path, text))
    return found, problems


def _annotated(images: LabelledImages, index: int, label: int) -> AnnotatedImage:
    """Read a trimap. Raises `BadFileError` unless it fits its image. An image without a pet has no objects."""
    pair = images.pairs[index]
    raw = images.aligned(index, images.image_size(index), images.open_labels(index))
    trimap: Labels = images.decoded(index, raw)
    mask = trimap == _PET
    number, size = index + 1, (trimap.shape[0], trimap.shape[1])
    if not mask.any():
        return AnnotatedImage(number, pair.image, size)
    rows, columns = (np.flatnonzero((trimap != _BACKGROUND).any(axis=axis)) for axis in (1, 0))
    left, top = int(columns[0]), int(rows[0])
    box = (left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top)
    one = Instance(number, label, box, encoded(mask), area=float(mask.sum()))
    return AnnotatedImage(number, pair.image, size, (one,))
