"""Samples of opened images: random crops for training, and whole images for evaluation."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.augmentation import Augmentation
from dnlnet.data.catalog import AnyOpened
from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.labelled import LabelledImages
from dnlnet.data.problems import BadFileError

AnySample = TypeVar("AnySample", covariant=True)


class Draw(NamedTuple):
    """Index of an image and number of an epoch."""

    image: int
    epoch: int


class Sample(NamedTuple):
    """Image, labels and file name of a sample, or of a batch with a leading batch dimension."""

    image: Tensor  # (3, H, W) in 0..255; the model's device normalises it
    labels: Tensor  # (H, W)
    name: str


class ImageSamples(Dataset[AnySample], Generic[AnyOpened, AnySample]):
    """Samples of opened images.

    Args:
        images: Opened images without missing files.
    """

    def __init__(self, images: AnyOpened) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        return self.images.classes

    def files(self) -> Iterator[Listed]:
        """Yield the files of the samples, in order."""
        return self.images.files()


class TrainingCrops(ImageSamples[LabelledImages, Sample]):
    """Random crops of labelled images.

    Each crop depends only on the seed, the epoch and the index, not on the number of workers or earlier crops, so
    that a run can resume anywhere.

    Args:
        images: Labelled images. Raises if a file is missing.
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
        whole, labels = self.images.open(index)
        rng = np.random.default_rng((self.seed, epoch, index))
        crop = self.augmentation.draw(rng, (whole.size[1], whole.size[0]))
        image = crop.image(whole)
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
        whole, raw = self.images.open(index)
        image = torch.from_numpy(np.array(whole)).permute(2, 0, 1).contiguous()
        labels = torch.from_numpy(self.images.decoded(index, raw))
        return Sample(image, labels, str(self.images.pairs[index].image))


def require_seed(seed: int) -> int:
    """Return a seed that is valid for random generators, or raise."""
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    return seed
