"""PASCAL-Context: images of VOC 2010 with all pixels labelled, in 59 classes, or 60 with the background."""

from pathlib import Path

from dnlnet.data.classes import IGNORE, Classes, spread_colours
from dnlnet.data.decoders import Decoder, index_labels
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, inside, pair_listed
from dnlnet.errors import unknown

_NAMES = (
    *("aeroplane", "bag", "bed", "bedclothes", "bench", "bicycle", "bird", "boat", "book", "bottle", "building"),
    *("bus", "cabinet", "car", "cat", "ceiling", "chair", "cloth", "computer", "cow", "cup", "curtain", "dog"),
    *("door", "fence", "floor", "flower", "food", "grass", "ground", "horse", "keyboard", "light", "motorbike"),
    *("mountain", "mouse", "person", "plate", "platform", "pottedplant", "road", "rock", "sheep", "shelves"),
    *("sidewalk", "sign", "sky", "snow", "sofa", "table", "track", "train", "tree", "truck", "tvmonitor", "wall"),
    *("water", "window", "wood"),
)
CLASSES = Classes(_NAMES, spread_colours(59))
CLASSES_60 = Classes(("background", *_NAMES), ((0, 0, 0), *spread_colours(59)))

SPLITS = ("train", "val")

_EXPECTED = "0 (background), 1..59 or 255 (void)"
_DECODE = index_labels({0: IGNORE, **{n: n - 1 for n in range(1, 60)}, 255: IGNORE}, _EXPECTED)
_DECODE_60 = index_labels({**{n: n for n in range(60)}, 255: IGNORE}, _EXPECTED)


def pascal_context(root: Path, split: str) -> LabelledImages:
    """Open the images of a split in 59 classes. The background is ignored.

    Args:
        root: Folder with `JPEGImages`, `SegmentationClassContext` and `ImageSets`, or a parent that contains it as
            `VOC2010` or `VOCdevkit/VOC2010`.
        split: train or val.

    >>> len(CLASSES), CLASSES.names[0]
    (59, 'aeroplane')
    >>> pascal_context(Path("VOC2010"), "test")
    Traceback (most recent call last):
    ValueError: unknown split 'test'; known: train, val
    """
    return _listed(f"pascal_context {split}", root, split, CLASSES, _DECODE)


def pascal_context_60(root: Path, split: str) -> LabelledImages:
    """Open the images of a split in 60 classes (see `pascal_context`). Class 0 is the background.

    >>> len(CLASSES_60), CLASSES_60.names[:2]
    (60, ('background', 'aeroplane'))
    """
    return _listed(f"pascal_context_60 {split}", root, split, CLASSES_60, _DECODE_60)


def _listed(name: str, root: Path, split: str, classes: Classes, decode: Decoder) -> LabelledImages:
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    folder = inside(root, "VOCdevkit/VOC2010", "VOC2010")
    images = files_by_stem(folder / "JPEGImages", (".jpg", ".jpeg"))
    labels = files_by_stem(folder / "SegmentationClassContext", (".png",))
    pairs, problems = pair_listed(folder / "ImageSets" / "SegmentationContext" / f"{split}.txt", images, labels)
    return LabelledImages(name, classes, pairs, decode, problems)
