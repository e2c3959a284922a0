"""Compare two ways to make training samples on one core: resizing only the cropped window, or the whole image.

Images of 2048 x 1024 pixels are generated; each sample is read, augmented, cropped to 769 x 769 and normalised.

Example: python benchmarks/data.py --json data.json
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from dnlnet.backbones.pixels import MEAN, STD, normalised
from dnlnet.bench.block import describe_machine
from dnlnet.bench.timing import compare_times
from dnlnet.cli.terminal.tables import print_table
from dnlnet.data.augmentation import PADDING, Augmentation
from dnlnet.data.classes import IGNORE
from dnlnet.data.decoders import index_labels
from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.data.samples import Draw, TrainingCrops
from dnlnet.data.scenes import CLASSES, scene
from dnlnet.files import write_json
from dnlnet.segmentation.data.unpacked import unpack_into

SIZE = (1024, 2048)
CROP = (769, 769)
SOURCES = ("png", "png, unpacked", "jpg", "jpg, unpacked")


@dataclass(frozen=True)
class SampleRates:
    """Samples per second on one core for one file type."""

    source: str
    file_megabytes: float
    plain_per_second: float
    ours_per_second: float

    @property
    def speedup(self) -> float:
        """Rate of the cropped window relative to the whole image."""
        return self.ours_per_second / self.plain_per_second


def main() -> None:
    """Measure every file type, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", "--pictures", type=int, default=6, help="number of images to generate and read")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs; the best of each counts")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    rows = list(bench_data(given.images, given.rounds))
    machine = describe_machine(threads=1)
    print_table(
        "Training samples per second and core, from 2048 x 1024 images",
        [
            {
                "files": row.source,
                "MB each": f"{row.file_megabytes:.2f}",
                "resize, then crop": f"{row.plain_per_second:.1f}",
                "window alone": f"{row.ours_per_second:.1f}",
                "faster": f"{row.speedup:.1f}x",
            }
            for row in rows
        ],
        caption=machine,
    )
    if given.json is not None:
        content = [{**asdict(row), "speedup": row.speedup} for row in rows]
        about = {"machine": machine, "pictures": given.images, "rounds": given.rounds}
        write_json(given.json, {**about, "rows": content})
        print(f"written: {given.json}")


def bench_data(images: int, rounds: int) -> Iterator[SampleRates]:
    """Yield the rates for PNG and JPEG files, packed and unpacked.

    Both methods read the same files with the same crops in interleaved rounds; the best time of each counts.
    """
    torch.set_num_threads(1)
    augmentation = Augmentation(crop=CROP)
    with TemporaryDirectory() as folder:
        for suffix in ("png", "jpg"):
            files = make_files(Path(folder) / suffix, images, suffix)
            unpacked = unpack_into(files, Path(folder) / "unpacked")
            for source, labelled in {suffix: files, f"{suffix}, unpacked": unpacked}.items():
                yield _measure(source, files, labelled, augmentation, rounds)


def make_files(folder: Path, count: int, suffix: str) -> LabelledImages:
    """Write smooth, slightly noisy scenes of street-scene size, which compress like real ones."""
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
    """Resize the whole image, then pad, crop and flip it, as torchvision's reference scripts do."""
    image, raw = images.open(index)
    rng = np.random.default_rng((0, 0, index))
    drawn = augmentation.draw(rng, (image.size[1], image.size[0]))
    image = image.resize(drawn.resized[::-1], Image.Resampling.BILINEAR)
    labels = Image.fromarray(images.decoded(index, raw)).resize(drawn.resized[::-1], Image.Resampling.NEAREST)
    bottom, right = (max(0, crop - size) for crop, size in zip(augmentation.crop, drawn.resized, strict=True))
    if bottom or right:
        image = v2.functional.pad(image, [0, 0, right, bottom], fill=PADDING)
        labels = v2.functional.pad(labels, [0, 0, right, bottom], fill=IGNORE)
    image = v2.functional.crop(image, drawn.top, drawn.left, *drawn.size)
    labels = v2.functional.crop(labels, drawn.top, drawn.left, *drawn.size)
    if drawn.flipped:
        image, labels = v2.functional.horizontal_flip(image), v2.functional.horizontal_flip(labels)
    shifted = v2.functional.pil_to_tensor(image).to(torch.int16) + drawn.brightness
    return v2.functional.normalize(shifted.clamp(0, 255).float(), MEAN, STD), v2.functional.pil_to_tensor(labels)[0]


def window_sample(crops: TrainingCrops, index: int) -> tuple[Tensor, Tensor]:
    """Return the same sample from `TrainingCrops`, normalised."""
    sample = crops[Draw(index, 0)]
    return normalised(sample.image[None])[0], sample.labels


def _measure(
    source: str, files: LabelledImages, images: LabelledImages, augmentation: Augmentation, rounds: int
) -> SampleRates:
    crops = TrainingCrops(images, augmentation)
    indices = range(len(files))
    for index in indices:
        window_sample(crops, index)  # fill the unpacked files
    times = compare_times(
        {
            "plain": lambda: [plain_sample(files, index, augmentation) for index in indices],
            "ours": lambda: [window_sample(crops, index) for index in indices],
        },
        rounds,
    )
    megabytes = sum(pair.image.stat().st_size for pair in files.pairs) / len(files) / 1e6
    return SampleRates(source, megabytes, len(files) / times["plain"].seconds, len(files) / times["ours"].seconds)


if __name__ == "__main__":
    main()
