"""Small generated data sets in the layout of real ones. Each function writes one and returns its root."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE = (24, 32)  # height, width


def cityscapes_tree(root: Path) -> Path:
    """Write three images of train in two cities, one of val, one of train_extra, and some files to be ignored."""
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
    """Write three training and two validation images to `ADEChallengeData2016`, and return its parent."""
    for split, short, count in (("training", "train", 3), ("validation", "val", 2)):
        for number in range(1, count + 1):
            stem = f"ADE_{short}_{number:08}"
            write_image(root / "ADEChallengeData2016" / "images" / split / f"{stem}.jpg", seed=number)
            write_labels(root / "ADEChallengeData2016" / "annotations" / split / f"{stem}.png", range(151))
    return root


def pascal_context_tree(root: Path, inner: str = "VOC2010") -> Path:
    """Write two images of train, one of val and one of no split to `inner`, and return its parent."""
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
    """Write two images of trainval and one of test; their lists have additional columns."""
    for number, name in enumerate(("Bengal_1", "beagle_7", "pug_3")):
        write_image(root / "images" / f"{name}.jpg", seed=number)
        write_labels(root / "annotations" / "trimaps" / f"{name}.png", (1, 2, 3))
    (root / "annotations" / "trainval.txt").write_text("beagle_7 5 2 1\nBengal_1 6 1 2\n")
    (root / "annotations" / "test.txt").write_text("pug_3 9 2 3\n")
    return root


def camvid_tree(root: Path) -> Path:
    """Write three images of train (its list names two), one of val and one of test (both without a list)."""
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
    """Write two images of train, one in a subfolder, and one of val; masks contain 0, 1, 2 and 255."""
    for number, name in enumerate(("train/a", "train/deep/b", "val/c")):
        write_image(root / "images" / f"{name}.jpg", seed=number)
        write_labels(root / "masks" / f"{name}.png", (0, 1, 2, 255))
    (root / "classes.yaml").write_text(classes)
    return root


def flat_tree(root: Path, numbers: Iterable[int] = range(20), classes: str = "names: [sky, road, car]\n") -> Path:
    """Write images without splits, whose masks contain 0, 1, 2 and 255."""
    for number in numbers:
        write_image(root / "images" / f"{number}.jpg", seed=number)
        write_labels(root / "masks" / f"{number}.png", (0, 1, 2, 255))
    (root / "classes.yaml").write_text(classes)
    return root


def colour_folder_tree(root: Path) -> Path:
    """Write one image of train, whose mask is one third each red, green and (ignored) black rows."""
    folder_classes = "{names: [a, b], colours: [[255, 0, 0], [0, 255, 0]], masks: colour, ignore: [0, 0, 0]}"
    write_image(root / "images" / "train" / "a.jpg")
    colours = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 0)], dtype=np.uint8)
    rows = np.repeat(colours, SIZE[0] // 3, axis=0)
    save(root / "masks" / "train" / "a.png", np.repeat(rows[:, None], SIZE[1], axis=1))
    (root / "classes.yaml").write_text(folder_classes)
    return root


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = SIZE) -> None:
    """Write an image of noise."""
    save(path, np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def write_labels(path: Path, values: Iterable[int], size: tuple[int, int] = SIZE) -> None:
    """Write a label file that repeats the values from the first pixel on."""
    save(path, np.resize(np.array(list(values), dtype=np.uint8), size))


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write pixels as an image, creating its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def truncate(path: Path, share: float = 0.5) -> None:
    """Cut off the end of a file, like an interrupted download."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def repeated(values: Sequence[int]) -> list[list[int]]:
    """Return the labels that `write_labels` writes for these values, as nested lists."""
    rows: list[list[int]] = np.resize(np.array(values), SIZE).tolist()
    return rows
