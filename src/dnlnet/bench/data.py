"""Training samples per second: resizing only the cropped window, against resizing the whole picture first."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from dnlnet.backbones.pixels import DEVIATION, MEAN, normalised
from dnlnet.bench.timing import best_times
from dnlnet.data.classes import IGNORE
from dnlnet.data.labelled import LabelledImages, Pair, index_labels
from dnlnet.data.transforms import PADDING, Augmentation
from dnlnet.segmentation.data.samples import Draw, TrainingCrops
from dnlnet.segmentation.data.scenes import CLASSES, scene
from dnlnet.segmentation.data.unpacked import unpack_into

SIZE = (1024, 2048)
CROP = (769, 769)
SOURCES = ("png", "png, unpacked", "jpg", "jpg, unpacked")


@dataclass(frozen=True)
class Row:
    """Samples per second on one core, for one kind of file."""

    source: str
    file_megabytes: float
    plain_per_second: float
    ours_per_second: float

    @property
    def speedup(self) -> float:
        """Ours over plain."""
        return self.ours_per_second / self.plain_per_second


def bench_data(pictures: int = 6, rounds: int = 3) -> Iterator[Row]:
    """Measure PNG and JPEG files of 2048 x 1024 pixels, packed and unpacked.

    Both methods take turns on the same files with the same crops, `rounds` times, and the best time of each counts.
    """
    torch.set_num_threads(1)
    augmentation = Augmentation(CROP)
    with TemporaryDirectory() as folder:
        for suffix in ("png", "jpg"):
            files = make_files(Path(folder) / suffix, pictures, suffix)
            unpacked = unpack_into(files, Path(folder) / "unpacked")
            for source, images in {suffix: files, f"{suffix}, unpacked": unpacked}.items():
                yield _measure(source, files, images, augmentation, rounds)


def make_files(folder: Path, count: int, suffix: str) -> LabelledImages:
    """Generate scenes of the size of street scenes, smooth with a little noise, to compress like photographs."""
    folder.mkdir(parents=True)
    pairs = []
    for number in range(count):
        image, labels = scene(number, (SIZE[0] // 4, SIZE[1] // 4))
        pixels = (255 * image.transpose(1, 2, 0)).astype(np.uint8)
        large = np.asarray(Image.fromarray(pixels).resize(SIZE[::-1], Image.Resampling.BICUBIC))
        noise = np.random.default_rng(number).normal(0, 1.5, large.shape)
        pair = Pair(folder / f"{number}.{suffix}", folder / f"{number}-labels.png")
        Image.fromarray((large + noise).clip(0, 255).astype(np.uint8)).save(pair.image)
        Image.fromarray(labels.astype(np.uint8)).resize(SIZE[::-1], Image.Resampling.NEAREST).save(pair.labels)
        pairs.append(pair)
    decode = index_labels({number: number for number in range(len(CLASSES))}, expected="a class")
    return LabelledImages("scenes", CLASSES, pairs, decode)


def plain_sample(images: LabelledImages, index: int, augmentation: Augmentation) -> tuple[Tensor, Tensor]:
    """Resize the whole picture, then pad, crop and flip it, as the reference scripts of torchvision do."""
    picture, raw = images.open(index)
    rng = np.random.default_rng((0, 0, index))
    drawn = augmentation.draw(rng, (picture.size[1], picture.size[0]))
    picture = picture.resize(drawn.resized[::-1], Image.Resampling.BILINEAR)
    labels = Image.fromarray(images.decoded(index, raw)).resize(drawn.resized[::-1], Image.Resampling.NEAREST)
    bottom, right = (max(0, crop - size) for crop, size in zip(augmentation.crop, drawn.resized, strict=True))
    if bottom or right:
        picture = v2.functional.pad(picture, [0, 0, right, bottom], fill=PADDING)
        labels = v2.functional.pad(labels, [0, 0, right, bottom], fill=IGNORE)
    picture = v2.functional.crop(picture, drawn.top, drawn.left, *drawn.size)
    labels = v2.functional.crop(labels, drawn.top, drawn.left, *drawn.size)
    if drawn.flipped:
        picture, labels = v2.functional.horizontal_flip(picture), v2.functional.horizontal_flip(labels)
    shifted = v2.functional.pil_to_tensor(picture).to(torch.int16) + drawn.brightness
    image = shifted.clamp(0, 255).float()
    return v2.functional.normalize(image, MEAN, DEVIATION), v2.functional.pil_to_tensor(labels)[0]


def window_sample(crops: TrainingCrops, index: int) -> tuple[Tensor, Tensor]:
    """The same sample from `TrainingCrops`, normalised."""
    sample = crops[Draw(index, 0)]
    return normalised(sample.image[None])[0], sample.labels


def _measure(
    source: str, files: LabelledImages, images: LabelledImages, augmentation: Augmentation, rounds: int
) -> Row:
    crops = TrainingCrops(images, augmentation)
    indices = range(len(files))
    for index in indices:
        window_sample(crops, index)  # unpacks, where it does
    best = best_times(
        {
            "plain": lambda: [plain_sample(files, index, augmentation) for index in indices],
            "ours": lambda: [window_sample(crops, index) for index in indices],
        },
        rounds,
    )
    megabytes = sum(pair.image.stat().st_size for pair in files.pairs) / len(files) / 1e6
    return Row(source, megabytes, len(files) / best["plain"], len(files) / best["ours"])
