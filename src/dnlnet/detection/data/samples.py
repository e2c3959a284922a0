"""Samples of images with objects: resized and flipped to train on, the same for the same seed; plain to evaluate on.

Images differ in size, so that a batch of them is a list: `collate` of each data set makes it.
"""

# H, W size of an image; n objects

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.pictures import resized_picture
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.data.sizes import Size
from dnlnet.detection.data.objects import InstanceImages, Target


class InstanceSample(NamedTuple):
    """An image, its objects as torchvision's detectors take them, and the file it comes from."""

    image: Tensor  # (3, H, W) of 0..255, to be normalised where the model is
    target: dict[str, Tensor]  # boxes (n, 4), labels (n,), masks (n, H, W), area (n,), iscrowd (n,), image_id ()
    name: str


class InstanceBatch(NamedTuple):
    """Several `InstanceSample`s."""

    image: list[Tensor]
    target: list[dict[str, Tensor]]
    name: list[str]


class WholeSample(NamedTuple):
    """An image as a detector sees it, which one it is, and the size that detections are to be brought back to."""

    image: Tensor  # (3, H, W) of 0..255
    image_id: int
    size: Size  # height and width of the file
    name: str


class WholeBatch(NamedTuple):
    """Several `WholeSample`s."""

    image: list[Tensor]
    image_id: list[int]
    size: list[Size]
    name: list[str]


class TrainingInstances(ImageSamples[InstanceImages, InstanceSample]):
    """Images with those of their objects that can be learnt from, resized, and flipped at random.

    Each sample depends on the seed, the epoch and the index alone: not on the number of workers, nor on what was
    drawn before, so that a run can go on where it stopped. Objects of which no pixel is left in the resized image
    are not in its target.

    Args:
        images: where they come from; complete, or this fails at once. `self.images.left_out` says what is not used.
        short_side: length that the shorter side is brought to; one of them at random if there are several.
        long_side: what the longer side may be at most.
        flip: probability of exchanging left and right.
        seed: of the whole run.
        keep_empty: also draw images without objects.
    """

    def __init__(
        self,
        images: InstanceImages,
        short_side: int | Sequence[int] = 800,
        long_side: int = 1333,
        flip: float = 0.5,
        seed: int = 0,
        *,
        keep_empty: bool = False,
    ) -> None:
        self.seed = require_seed(seed)
        if not 0 <= flip <= 1:
            raise ValueError(f"flip is a probability, got {flip}")
        self.short_sides = (short_side,) if isinstance(short_side, int) else tuple(short_side)
        _require_sides(self.short_sides, long_side)
        super().__init__(images.require_complete().for_training(keep_empty=keep_empty))
        if not len(self.images):
            raise ValueError(f"{images.name} has no object to learn from; dnlnet data check shows what it holds")
        self.long_side, self.flip = long_side, flip

    @property
    def groups(self) -> list[int]:
        """Of each image 1 if it is wider than high, else 0: those of one group need little padding to one size."""
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
        picture, target = resized_picture(self.images.picture(index), size), self.images.target(index, size).visible()
        if flipped:
            picture, target = picture[:, ::-1], target.flipped()
        return InstanceSample(_to_tensor(picture), target_tensors(target), str(image.path))

    @staticmethod
    def collate(samples: Sequence[InstanceSample]) -> InstanceBatch:
        """A batch of samples, as the `collate_fn` of a loader.

        >>> sample = InstanceSample(torch.zeros(3, 1, 2), {"labels": torch.ones(1)}, "a.jpg")
        >>> TrainingInstances.collate([sample, sample]).name
        ['a.jpg', 'a.jpg']
        """
        return InstanceBatch(
            [one.image for one in samples], [one.target for one in samples], [one.name for one in samples]
        )


class WholeInstances(ImageSamples[InstanceImages, WholeSample]):
    """All images, also those without objects, resized as for training but not flipped, by index: to evaluate on.

    Args:
        images: where they come from; complete, or this fails at once.
        short_side: length that the shorter side is brought to.
        long_side: what the longer side may be at most.
    """

    def __init__(self, images: InstanceImages, short_side: int = 800, long_side: int = 1333) -> None:
        _require_sides((short_side,), long_side)
        super().__init__(images.require_complete())
        self.short_side, self.long_side = short_side, long_side

    def __getitem__(self, index: int) -> WholeSample:
        image = self.images.images[index]
        size = resized_size(image.size, self.short_side, self.long_side)
        picture = resized_picture(self.images.picture(index), size)
        return WholeSample(_to_tensor(picture), image.number, image.size, str(image.path))

    @staticmethod
    def collate(samples: Sequence[WholeSample]) -> WholeBatch:
        """A batch of samples, as the `collate_fn` of a loader.

        >>> WholeInstances.collate([WholeSample(torch.zeros(3, 1, 2), 7, (1, 2), "a.jpg")]).size
        [(1, 2)]
        """
        return WholeBatch(
            [one.image for one in samples],
            [one.image_id for one in samples],
            [one.size for one in samples],
            [one.name for one in samples],
        )


def resized_size(size: Size, short_side: int, long_side: int) -> Size:
    """The size with a shorter side of `short_side`, or less where the longer one would pass `long_side`.

    >>> resized_size((480, 640), 800, 1333), resized_size((200, 640), 800, 1333)
    ((800, 1067), (417, 1333))
    """
    scale = min(short_side / min(size), long_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def target_tensors(target: Target) -> dict[str, Tensor]:
    """The objects under the names that torchvision's detectors use.

    >>> box, one = np.array([[0, 0, 2, 2]], dtype=np.float32), np.ones(1, dtype=np.float32)
    >>> target = Target(box, one.astype(int), np.ones((1, 2, 2), np.uint8), 4 * one, one < 1, image=7)
    >>> target_tensors(target)["boxes"]
    tensor([[0., 0., 2., 2.]])
    """
    return {
        "boxes": torch.from_numpy(target.boxes),
        "labels": torch.from_numpy(target.labels),
        "masks": torch.from_numpy(target.masks),
        "area": torch.from_numpy(target.area),
        "iscrowd": torch.from_numpy(target.crowd).to(torch.int64),
        "image_id": torch.tensor(target.image),
    }


def _require_sides(short_sides: Sequence[int], long_side: int) -> None:
    if not short_sides or min(short_sides) < 1:
        raise ValueError(f"short_side must be at least 1 pixel, got {short_sides}")
    if long_side < max(short_sides):
        raise ValueError(f"long_side must be at least short_side, {max(short_sides)}, got {long_side}")


def _to_tensor(picture: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.array(picture.transpose(2, 0, 1), order="C"))  # a copy, which may be written to
