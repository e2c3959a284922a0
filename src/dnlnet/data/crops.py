"""Training samples: a random crop of a labelled image, the same for the same seed, epoch and index."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.labelled import BadFileError, LabelledImages
from dnlnet.data.scenes import Scenes
from dnlnet.data.transforms import Augmentation


class Draw(NamedTuple):
    """Which image, and in which epoch: what a sampler asks `TrainingCrops` for."""

    image: int
    epoch: int


class Sample(NamedTuple):
    """An image, its labels, and the file it comes from; of a batch, all three with the batch in front."""

    image: Tensor  # (3, H, W) of 0..255, to be normalised where the model is
    labels: Tensor  # (H, W)
    name: str


class TrainingCrops(Dataset[Sample]):
    """Random crops of labelled images.

    Each crop depends on the seed, the epoch and the index alone: not on the number of workers, nor on what was drawn
    before, so that a run can go on where it stopped.

    Args:
        images: where they come from; complete, or this fails at once.
        augmentation: how crops are drawn.
        seed: of the whole run.
    """

    def __init__(self, images: LabelledImages, augmentation: Augmentation, seed: int = 0) -> None:
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        self.images, self.augmentation, self.seed = images.require_complete(), augmentation, seed

    def __len__(self) -> int:
        return len(self.images)

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
            self.images.decoded(index, labels.crop((0, 0, *labels.size)))  # fails with the place in the whole file
            raise
        return Sample(
            torch.from_numpy(image).permute(2, 0, 1).contiguous(),
            torch.from_numpy(crop.padded_labels(window)),
            str(self.images.pairs[index].image),
        )


class SceneCrops(Dataset[Sample]):
    """Generated scenes as training samples.

    Args:
        count: how many; every one is another scene, and an epoch later they come again.
        size: height and width.
        seed: of the whole run. No seed gives the scenes that models are tested on.

    >>> SceneCrops(4, (32, 48))[Draw(3, epoch=0)].image.shape
    torch.Size([3, 32, 48])
    """

    name: ClassVar[str] = "scenes"

    def __init__(self, count: int, size: tuple[int, int], seed: int = 0) -> None:
        self.scenes = Scenes(count, size, seed + 1)  # those of seed 0 are for testing

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, draw: tuple[int, int]) -> Sample:
        image, labels = self.scenes[draw[0]]
        return Sample((255 * image).to(torch.uint8), labels.to(torch.uint8), f"scene {draw[0]}")
