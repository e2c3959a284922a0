"""Samples of labelled images: random crops for training, and whole images for evaluation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.labelled import LabelledImages
from dnlnet.data.problems import BadFileError
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.data.scenes import CLASSES, Scenes
from dnlnet.data.transforms import Augmentation


class Draw(NamedTuple):
    """Index of an image and number of an epoch."""

    image: int
    epoch: int


class Sample(NamedTuple):
    """Image, labels and file name of a sample, or of a batch with a leading batch dimension."""

    image: Tensor  # (3, H, W) in 0..255; the model's device normalises it
    labels: Tensor  # (H, W)
    name: str


class TrainingCrops(ImageSamples[LabelledImages, Sample]):
    """Random crops of labelled images.

    Each crop depends only on the seed, the epoch and the index, not on the number of workers or earlier crops, so
    that a run can resume anywhere.

    Args:
        images: Labelled images. Raises if they are not complete.
        augmentation: Distribution of the crops.
        seed: Random seed of the run.
    """

    def __init__(self, images: LabelledImages, augmentation: Augmentation, seed: int = 0) -> None:
        self.augmentation, self.seed = augmentation, require_seed(seed)
        super().__init__(images.require_complete())

    def __getitem__(self, draw: tuple[int, int]) -> Sample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} is outside 0..{len(self) - 1}")
        picture, labels = self.images.open(index)
        rng = np.random.default_rng((self.seed, epoch, index))
        crop = self.augmentation.draw(rng, (picture.size[1], picture.size[0]))
        image = crop.image(picture)
        try:
            window = self.images.decoded(index, crop.labels(labels))
        except BadFileError:
            self.images.decoded(index, labels.crop((0, 0, *labels.size)))  # raises with the place in the whole file
            raise
        return Sample(
            torch.from_numpy(image).permute(2, 0, 1).contiguous(),
            torch.from_numpy(crop.padded_labels(window)),
            str(self.images.pairs[index].image),
        )


class WholeImages(ImageSamples[LabelledImages, Sample]):
    """Whole labelled images by index, for evaluation."""

    def __init__(self, images: LabelledImages) -> None:
        super().__init__(images.require_complete())

    def __getitem__(self, index: int) -> Sample:
        picture, raw = self.images.open(index)
        image = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()
        labels = torch.from_numpy(self.images.decoded(index, raw))
        return Sample(image, labels, str(self.images.pairs[index].image))


class SceneSamples(Dataset[Sample]):
    """Generated scenes as samples, by index or `Draw`. Each index has one scene, the same in every epoch.

    >>> scenes = SceneSamples(4, (32, 48))
    >>> scenes[Draw(3, epoch=1)].image.shape, scenes[3].name
    (torch.Size([3, 32, 48]), 'scene 3 of seed 0')
    """

    def __init__(self, count: int, size: tuple[int, int], seed: int = 0) -> None:
        self.scenes = Scenes(count, size, seed)

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        return CLASSES

    def files(self) -> Iterator[Listed]:
        """Return no files, because scenes are generated."""
        return iter(())

    def __getitem__(self, draw: int | tuple[int, int]) -> Sample:
        index = draw if isinstance(draw, int) else draw[0]
        image, labels = self.scenes[index]
        name = f"scene {index} of seed {self.scenes.seed}"
        return Sample((255 * image).to(torch.uint8), labels.to(torch.uint8), name)
