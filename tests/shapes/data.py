"""Images in folders named after their class: <split>/<class>/*.png."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from dnlnet.data.catalog import DataSet
from dnlnet.data.check import Contents, collecting, count_of, counts_or_none, sizes_and_problems
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.data.fingerprint import Listed
from dnlnet.data.images import read_image_file
from dnlnet.data.problems import Problem
from dnlnet.progress import SILENT, Progress

SPLITS = ("train", "val")


@dataclass(frozen=True)
class ShapeImages:
    """Images of a split."""

    name: str
    classes: Classes
    entries: Sequence[tuple[Path, int]]
    problems: Sequence[Problem] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def files(self) -> Iterator[Listed]:
        yield from self.entries


def open_shapes(root: Path, split: str) -> ShapeImages:
    if not (root / split).is_dir():
        raise FileNotFoundError(f"{root / split}: no such folder")
    names = sorted({path.name for one in SPLITS for path in (root / one).glob("*") if path.is_dir()})
    entries = [(path, label) for label, name in enumerate(names) for path in sorted((root / split / name).glob("*"))]
    return ShapeImages(f"shapes {split}", Classes(names, spread_colours(len(names))), entries)


class Samples:
    """Images as tensors, by index, or by index and epoch."""

    def __init__(self, images: ShapeImages) -> None:
        self.images, self.classes, self.files = images, images.classes, images.files

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> tuple[Tensor, int, str]:
        path, label = self.images.entries[index if isinstance(index, int) else index[0]]
        return torch.from_numpy(read_image_file(path).copy()).permute(2, 0, 1), label, str(path)


@dataclass(frozen=True)
class Report:
    name: str
    class_names: Sequence[str]
    counts: Sequence[int]
    sizes: dict[tuple[int, int], int]
    problems: Sequence[Problem]

    def contents(self) -> Contents:
        columns = {"pictures": counts_or_none(self.counts)}
        return Contents(count_of(sum(self.counts), "picture"), self.counts, columns, "")

    def to_json(self) -> dict[str, object]:
        return {"classes": dict(zip(self.class_names, self.counts, strict=True))} | sizes_and_problems(
            self.sizes, self.problems
        )


def check(images: ShapeImages, progress: Progress = SILENT) -> Report:
    problems: list[Problem] = []
    sizes: Counter[tuple[int, int]] = Counter()
    with progress.track(images.name, len(images)) as done:
        for path, _ in images.entries:
            with collecting(problems):
                height, width = read_image_file(path).shape[:2]
                sizes[width, height] += 1
            done.advance()
    counts = Counter(label for _, label in images.entries)
    labels = range(len(images.classes))
    return Report(images.name, images.classes.names, [counts[label] for label in labels], dict(sizes), problems)


DATA_SETS = {"shapes": DataSet("shapes", SPLITS, open_shapes, "{train,val}/<class>/*.png", class_count=2)}


def draw_shapes(root: Path) -> Path:
    """Write a folder of discs and squares."""
    for split, count in (("train", 6), ("val", 2)):
        for name in ("disc", "square"):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", (32, 32), (number * 20, 60, 120))
                draw = ImageDraw.Draw(image)
                (draw.ellipse if name == "disc" else draw.rectangle)((6, 6, 24, 26), fill=(240, 200, 20 * number))
                image.save(root / split / name / f"{number}.png")
    return root
