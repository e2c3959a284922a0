"""Training and test samples of images with objects.

Images differ in size, so the images of a batch are a list. Each data set has the `collate` function for its samples.
"""

# H, W size of an image; n objects

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.images import HeightWidth, resized_image
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.detection.data.objects import InstanceImages, Target


class InstanceSample(NamedTuple):
    """An image and its objects in the form that torchvision's detectors take."""

    image: Tensor  # (3, H, W) in 0..255
    target: dict[str, Tensor]  # boxes (n, 4), labels (n,), masks (n, H, W), area (n,), iscrowd (n,), image_id ()
    name: str  # path of the file


class InstanceBatch(NamedTuple):
    """The samples of a training batch."""

    image: list[Tensor]
    target: list[dict[str, Tensor]]
    name: list[str]


class TestSample(NamedTuple):
    """An image without its objects."""

    image: Tensor  # (3, H, W) in 0..255
    image_id: int
    size: HeightWidth  # height and width of the file, for which detections are scored
    name: str  # path of the file


class TestBatch(NamedTuple):
    """The samples of a test batch."""

    image: list[Tensor]
    image_id: list[int]
    size: list[HeightWidth]
    name: list[str]


class TrainingInstances(ImageSamples[InstanceImages, InstanceSample]):
    """Resized and randomly flipped images with the objects that can be trained on.

    Each sample depends only on the seed, the epoch and the index, so a run can be resumed with any number of workers.
    Objects without a pixel in the resized image are left out of its target.

    Args:
        images: Images, checked for completeness. `self.images.left_out` counts the objects that are not used.
        short_side: Length of the shorter side after resizing, or several lengths to choose from at random.
        long_side: Maximum length of the longer side.
        flip: Probability of a horizontal flip.
        seed: Random seed of the run.
    """

    def __init__(
        self,
        images: InstanceImages,
        short_side: int | Sequence[int] = 800,
        long_side: int = 1333,
        flip: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.seed = require_seed(seed)
        if not 0 <= flip <= 1:
            raise ValueError(f"flip is a probability, got {flip}")
        self.short_sides = (short_side,) if isinstance(short_side, int) else tuple(short_side)
        _require_sides(self.short_sides, long_side)
        super().__init__(images.require_complete().for_training())
        if not len(self.images):
            raise ValueError(f"{images.name} has no object to train on; dnlnet data check shows what it holds")
        self.long_side, self.flip = long_side, flip

    @property
    def groups(self) -> list[int]:
        """Group of each image, 1 if it is wider than high and else 0. Batches of one group need little padding."""
        return [int(width > height) for height, width in (image.size for image in self.images.images)]

    def __getitem__(self, draw: tuple[int, int]) -> InstanceSample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} is outside 0..{len(self) - 1}")
        rng = np.random.default_rng((self.seed, epoch, index))
        short_side = self.short_sides[int(rng.integers(len(self.short_sides)))]
        flipped = bool(rng.random() < self.flip)
        image = self.images.images[index]
        size = resized_size(image.size, short_side, self.long_side)
        pixels, target = resized_image(self.images.pixels(index), size), self.images.target(index, size).visible()
        if flipped:
            pixels, target = pixels[:, ::-1], target.flipped()
        return InstanceSample(_to_tensor(pixels), target_tensors(target), str(image.path))

    @staticmethod
    def collate(samples: Sequence[InstanceSample]) -> InstanceBatch:
        """Combine samples into a batch, as the `collate_fn` of a loader.

        >>> sample = InstanceSample(torch.zeros(3, 1, 2), {"labels": torch.ones(1)}, "a.jpg")
        >>> TrainingInstances.collate([sample, sample]).name
        ['a.jpg', 'a.jpg']
        """
        return InstanceBatch(*map(list, zip(*samples, strict=True)))


class TestInstances(ImageSamples[InstanceImages, TestSample]):
    """All images, including those without objects, resized as for training.

    Args:
        images: Images, checked for completeness.
        short_side: Length of the shorter side after resizing.
        long_side: Maximum length of the longer side.
    """

    __test__ = False  # tells pytest that this is not a class of tests

    def __init__(self, images: InstanceImages, short_side: int = 800, long_side: int = 1333) -> None:
        _require_sides((short_side,), long_side)
        super().__init__(images.require_complete())
        self.short_side, self.long_side = short_side, long_side

    def __getitem__(self, index: int) -> TestSample:
        image = self.images.images[index]
        size = resized_size(image.size, self.short_side, self.long_side)
        pixels = resized_image(self.images.pixels(index), size)
        return TestSample(_to_tensor(pixels), image.id, image.size, str(image.path))

    @staticmethod
    def collate(samples: Sequence[TestSample]) -> TestBatch:
        """Combine samples into a batch, as the `collate_fn` of a loader.

        >>> TestInstances.collate([TestSample(torch.zeros(3, 1, 2), 7, (1, 2), "a.jpg")]).size
        [(1, 2)]
        """
        return TestBatch(*map(list, zip(*samples, strict=True)))


def resized_size(size: HeightWidth, short_side: int, long_side: int) -> HeightWidth:
    """Scale a size to a shorter side of `short_side`, or less if the longer side would exceed `long_side`.

    >>> resized_size((480, 640), 800, 1333), resized_size((200, 640), 800, 1333)
    ((800, 1067), (417, 1333))
    """
    scale = min(short_side / min(size), long_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def target_tensors(target: Target) -> dict[str, Tensor]:
    """Convert a target to tensors under torchvision's names.

    >>> box, one = np.array([[0, 0, 2, 2]], dtype=np.float32), np.ones(1, dtype=np.float32)
    >>> target = Target(box, one.astype(int), np.ones((1, 2, 2), np.uint8), 4 * one, one < 1, image_id=7)
    >>> target_tensors(target)["boxes"]
    tensor([[0., 0., 2., 2.]])
    """
    return {
        "boxes": torch.from_numpy(target.boxes),
        "labels": torch.from_numpy(target.labels),
        "masks": torch.from_numpy(target.masks),
        "area": torch.from_numpy(target.area),
        "iscrowd": torch.from_numpy(target.crowd).to(torch.int64),
        "image_id": torch.tensor(target.image_id),
    }


def _require_sides(short_sides: Sequence[int], long_side: int) -> None:
    if not short_sides or min(short_sides) < 1:
        raise ValueError(f"short_side must be at least 1 pixel, got {short_sides}")
    if long_side < max(short_sides):
        raise ValueError(f"long_side must be at least short_side, {max(short_sides)}, got {long_side}")


def _to_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C"))  # a writable copy
