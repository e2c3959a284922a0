"""ADE20K: indoor and outdoor scenes in the 150 classes of the 2016 scene parsing challenge."""

from pathlib import Path

from dnlnet.data.classes import IGNORE, Classes, spread_colours
from dnlnet.data.decoders import index_labels
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, inside, pair_files
from dnlnet.errors import unknown

# First name in each line of the challenge's objectInfo150.txt.
_NAMES = (
    *("wall", "building", "sky", "floor", "tree", "ceiling", "road", "bed", "windowpane", "grass", "cabinet"),
    *("sidewalk", "person", "earth", "door", "table", "mountain", "plant", "curtain", "chair", "car", "water"),
    *("painting", "sofa", "shelf", "house", "sea", "mirror", "rug", "field", "armchair", "seat", "fence", "desk"),
    *("rock", "wardrobe", "lamp", "bathtub", "railing", "cushion", "base", "box", "column", "signboard"),
    *("chest of drawers", "counter", "sand", "sink", "skyscraper", "fireplace", "refrigerator", "grandstand", "path"),
    *("stairs", "runway", "case", "pool table", "pillow", "screen door", "stairway", "river", "bridge", "bookcase"),
    *("blind", "coffee table", "toilet", "flower", "book", "hill", "bench", "countertop", "stove", "palm"),
    *("kitchen island", "computer", "swivel chair", "boat", "bar", "arcade machine", "hovel", "bus", "towel"),
    *("light", "truck", "tower", "chandelier", "awning", "streetlight", "booth", "television", "airplane"),
    *("dirt track", "apparel", "pole", "land", "bannister", "escalator", "ottoman", "bottle", "buffet", "poster"),
    *("stage", "van", "ship", "fountain", "conveyer belt", "canopy", "washer", "plaything", "swimming pool", "stool"),
    *("barrel", "basket", "waterfall", "tent", "bag", "minibike", "cradle", "oven", "ball", "food", "step", "tank"),
    *("trade name", "microwave", "pot", "animal", "bicycle", "lake", "dishwasher", "screen", "blanket", "sculpture"),
    *("hood", "sconce", "vase", "traffic light", "tray", "ashcan", "fan", "pier", "crt screen", "plate", "monitor"),
    *("bulletin board", "shower", "radiator", "glass", "clock", "flag"),
)
CLASSES = Classes(_NAMES, spread_colours(150))

SPLITS = {"train": "training", "val": "validation"}  # split -> folder

_DECODE = index_labels({0: IGNORE, **{n: n - 1 for n in range(1, 151)}}, expected="0 (void) or 1..150")


def ade20k(root: Path, split: str) -> LabelledImages:
    """Open the images of a split.

    Args:
        root: Folder `ADEChallengeData2016` with `images` and `annotations`, or its parent.
        split: train or val.

    >>> len(CLASSES), CLASSES.names[:3]
    (150, ('wall', 'building', 'sky'))
    >>> ade20k(Path("ADEChallengeData2016"), "validation")
    Traceback (most recent call last):
    ValueError: unknown split 'validation'; known: train, val
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    folder = inside(root, "ADEChallengeData2016")
    images = files_by_stem(folder / "images" / SPLITS[split])
    labels = files_by_stem(folder / "annotations" / SPLITS[split], (".png",))
    pairs, problems = pair_files(images, labels)
    return LabelledImages(f"ade20k {split}", CLASSES, pairs, _DECODE, problems)
