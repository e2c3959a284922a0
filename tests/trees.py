"""Small generated data sets in the folders that the real ones have; each function writes one and returns its root."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE = (24, 32)  # height, width


def cityscapes_tree(root: Path) -> Path:
    """Three images of train in two cities, one of val, one of train_extra, and the files that do not count."""
    fine = [("train", "aachen", 0), ("train", "aachen", 1), ("train", "bochum", 0), ("val", "munster", 0)]
    for kind, split, city, number in [*(("gtFine", *row) for row in fine), ("gtCoarse", "train_extra", "bonn", 0)]:
        name = f"{city}_{number:06}_000019"
        write_image(root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png", seed=number)
        label_folder = root / kind / split / city
        write_labels(label_folder / f"{name}_{kind}_labelIds.png", (*range(34), 255))
        write_labels(label_folder / f"{name}_{kind}_instanceIds.png", range(250))
        write_image(label_folder / f"{name}_{kind}_color.png")
        (label_folder / f"{name}_{kind}_polygons.json").write_text("{}")
    return root


def ade20k_tree(root: Path) -> Path:
    """Three images of training and two of validation in `ADEChallengeData2016`, whose parent is returned."""
    for split, short, count in (("training", "train", 3), ("validation", "val", 2)):
        for number in range(1, count + 1):
            stem = f"ADE_{short}_{number:08}"
            write_image(root / "ADEChallengeData2016" / "images" / split / f"{stem}.jpg", seed=number)
            write_labels(root / "ADEChallengeData2016" / "annotations" / split / f"{stem}.png", range(151))
    return root


def pascal_context_tree(root: Path, inner: str = "VOC2010") -> Path:
    """Two images of train, one of val and one of no split in `inner`, whose parent is returned."""
    folder = root / inner
    for number in range(1, 5):
        write_image(folder / "JPEGImages" / f"2008_00000{number}.jpg", seed=number)
        write_labels(folder / "SegmentationClassContext" / f"2008_00000{number}.png", (*range(60), 255))
    lists = folder / "ImageSets" / "SegmentationContext"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("2008_000003\n2008_000001\n")
    (lists / "val.txt").write_text("2008_000002\n")
    return root


def oxford_pets_tree(root: Path) -> Path:
    """Two images of trainval and one of test, whose lists have further columns."""
    for number, name in enumerate(("Bengal_1", "beagle_7", "pug_3")):
        write_image(root / "images" / f"{name}.jpg", seed=number)
        write_labels(root / "annotations" / "trimaps" / f"{name}.png", (1, 2, 3))
    (root / "annotations" / "trainval.txt").write_text("beagle_7 5 2 1\nBengal_1 6 1 2\n")
    (root / "annotations" / "test.txt").write_text("pug_3 9 2 3\n")
    return root


def camvid_tree(root: Path) -> Path:
    """Three images of train, of which its list names two, one of val, one of test; the others have no list."""
    for split, count in (("train", 3), ("val", 1), ("test", 1)):
        for number in range(count):
            write_image(root / split / f"0001TP_{number:06}.jpg", seed=number)
            write_labels(root / f"{split}annot" / f"0001TP_{number:06}.png", range(12))
    names = [f"/SegNet/CamVid/{{}}/0001TP_{number:06}.png" for number in (2, 0)]
    (root / "train.txt").write_text(
        "".join(f"{name.format('train')} {name.format('trainannot')}\n" for name in names)
    )
    return root


def folder_tree(root: Path, classes: str = "names: [sky, road, car]\n") -> Path:
    """Two images of train, one of them in a subfolder, and one of val; masks of the numbers 0, 1, 2 and 255."""
    for number, name in enumerate(("train/a", "train/deep/b", "val/c")):
        write_image(root / "images" / f"{name}.jpg", seed=number)
        write_labels(root / "masks" / f"{name}.png", (0, 1, 2, 255))
    (root / "classes.yaml").write_text(classes)
    return root


def colour_folder_tree(root: Path) -> Path:
    """One image of train, whose mask is red, green and (ignored) black, a third of the rows each."""
    folder_classes = "{names: [a, b], colours: [[255, 0, 0], [0, 255, 0]], masks: colour, ignore: [0, 0, 0]}"
    write_image(root / "images" / "train" / "a.jpg")
    colours = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 0)], dtype=np.uint8)
    rows = np.repeat(colours, SIZE[0] // 3, axis=0)
    save(root / "masks" / "train" / "a.png", np.repeat(rows[:, None], SIZE[1], axis=1))
    (root / "classes.yaml").write_text(folder_classes)
    return root


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = SIZE) -> None:
    """A picture of noise."""
    save(path, np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def write_labels(path: Path, values: Iterable[int], size: tuple[int, int] = SIZE) -> None:
    """A label file in which the values follow one another from the first pixel on, again and again."""
    save(path, np.resize(np.array(list(values), dtype=np.uint8), size))


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write pixels as a picture, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def truncate(path: Path, share: float = 0.5) -> None:
    """Cut off the end of a file, as a broken download does."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def repeated(values: Sequence[int]) -> list[list[int]]:
    """What `write_labels` writes for these values, as nested lists."""
    rows: list[list[int]] = np.resize(np.array(values), SIZE).tolist()
    return rows
