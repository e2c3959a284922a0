"""Training and test samples of images with objects, or of their features. A batch is a list of samples."""

# H, W size of an image; n objects

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dnlnet.data.images import HeightWidth, resized_image
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.detection.data.features import FlippedView, to_tensor
from dnlnet.detection.data.objects import InstanceImages
from dnlnet.detection.network import ImageFeatures
from dnlnet.detection.schema import InstanceData
from dnlnet.recipes.features import Source


class InstanceSample(NamedTuple):
    """An image and its objects in the form that torchvision's detectors take."""

    image: Tensor | ImageFeatures  # (3, H, W) in 0..255
    target: dict[str, Tensor]  # boxes (n, 4), labels (n,), masks (n, H, W), area (n,), iscrowd (n,), image_id ()
    name: str  # path of the file


class TestSample(NamedTuple):
    """An image without its objects."""

    image: Tensor | ImageFeatures  # (3, H, W) in 0..255
    image_id: int
    size: HeightWidth  # height and width of the file, for which detections are scored
    name: str  # path of the file


class TrainingInstances(ImageSamples[InstanceImages, InstanceSample]):
    """Resized and randomly flipped images with the objects that can be trained on.

    Each sample depends only on the seed, the epoch and the index, so a run can be resumed with any number of workers.
    Objects without a pixel in the resized image are left out of its target.

    Args:
        images: Images, checked for completeness. `self.images.left_out` counts the objects that are not used.
        data: Size of resized images, and probability of a flip.
        seed: Random seed of the run.
        source: Source of the features that replace images. Default: read the images.
    """

    collate = list  # images differ in size

    def __init__(
        self, images: InstanceImages, data: InstanceData, seed: int = 0, source: Source[FlippedView] | None = None
    ) -> None:
        self.data, self.seed, self.source = data, require_seed(seed), source
        super().__init__(images.require_complete().for_training())
        if not len(self.images):
            raise ValueError(f"{images.name} has no object to train on; dnlnet data check shows what it holds")

    @property
    def groups(self) -> list[int]:
        """Group of each image, 1 if it is wider than high and else 0. Batches of one group need little padding."""
        return [int(width > height) for height, width in (image.size for image in self.images.images)]

    def __getitem__(self, draw: tuple[int, int]) -> InstanceSample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} is outside 0..{len(self) - 1}")
        image = self.images.images[index]
        flipped = bool(np.random.default_rng((self.seed, epoch, index)).random() < self.data.flip)
        target = self.images.target(index, self.data.resized(image.size)).visible()
        target = target.flipped() if flipped else target
        tensors = {name: torch.as_tensor(value) for name, value in vars(target).items()}
        return InstanceSample(_input(self.images, index, self.data, self.source, flipped), tensors, str(image.path))


class TestInstances(ImageSamples[InstanceImages, TestSample]):
    """All images, including those without objects, resized as for training.

    Args:
        images: Images, checked for completeness.
        data: Size of resized images.
        source: Source of the features that replace images. Default: read the images.
    """

    __test__ = False  # tells pytest that this is not a class of tests
    collate = list  # images differ in size

    def __init__(self, images: InstanceImages, data: InstanceData, source: Source[FlippedView] | None = None) -> None:
        super().__init__(images.require_complete())
        self.data, self.source = data, source

    def __getitem__(self, index: int) -> TestSample:
        image = self.images.images[index]
        return TestSample(_input(self.images, index, self.data, self.source), image.id, image.size, str(image.path))


def _input(
    images: InstanceImages,
    index: int,
    data: InstanceData,
    source: Source[FlippedView] | None,
    flipped: bool = False,
) -> Tensor | ImageFeatures:
    """Return the resized image (3, H, W) in 0..255, or its features."""
    image = images.images[index]
    if source is not None:
        return ImageFeatures(source(image.path, FlippedView(image.size, flipped)), data.resized(image.size))
    return to_tensor(resized_image(images.pixels(index), data.resized(image.size)), flipped)
