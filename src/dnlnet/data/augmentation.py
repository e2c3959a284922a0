"""Random crops for training that resize only the window of the crop.

Most libraries resize the whole image and then crop it. Here only the pixels of the crop are computed, which gives the
same result up to rounding.
"""

# H, W size of an image

import warnings
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from dnlnet.data.classes import IGNORE
from dnlnet.fields import Fraction, HeightWidth, Part, ScaleRange, SmallInt

PADDING = (124, 116, 104)  # ImageNet's mean, rounded; nearly zero after normalisation


class CroppableImage(Protocol):
    """Image that can be cropped: a PIL image, or one that is read only where needed."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        ...

    def crop(self, box: tuple[int, int, int, int]) -> Image.Image:
        """Return the part between left, upper, right and lower."""
        ...


@dataclass(frozen=True)
class Crop:
    """Random choices of one crop.

    Args:
        resized: Size of the whole image after resizing.
        top, left: Position of the crop in the resized image.
        size: Size of the crop. Parts outside the image are padded, at the bottom and on the right.
        flipped: True to mirror the crop left to right, with its padding.
        brightness: Number added to all pixels, which are clipped to 0..255.
    """

    resized: HeightWidth
    top: int
    left: int
    size: HeightWidth
    flipped: bool = False
    brightness: int = 0

    def image(self, image: CroppableImage) -> NDArray[np.uint8]:
        """Return the crop (H, W, 3) of an RGB image."""
        window = self._window(image, Image.Resampling.BILINEAR)
        if self.brightness:
            window = window.point([min(max(value + self.brightness, 0), 255) for value in range(256)] * 3)
        return self._placed(np.asarray(window), PADDING)

    def labels(self, image: CroppableImage) -> Image.Image:
        """Return the raw values of a label map in the crop, without padding."""
        return self._window(image, Image.Resampling.NEAREST)

    def padded_labels(self, window: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the padded crop of the labels (H, W), given the decoded result of `labels`."""
        return self._placed(window, IGNORE)

    def _window(self, image: CroppableImage, resampling: Image.Resampling) -> Image.Image:
        """Return the same pixels as resizing the whole image and cropping."""
        height, width = (min(size, whole - start) for size, whole, start in self._axes())
        boxes = [
            _source_span(start, length, whole, original)
            for (_, whole, start), length, original in zip(
                self._axes(), (height, width), reversed(image.size), strict=True
            )
        ]
        (upper, lower, y0, y1), (left, right, x0, x1) = boxes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the image is decoded already
            part = image.crop((left, upper, right, lower))
        return part.resize((width, height), resampling, box=(x0, y0, x1, y1))

    def _axes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return for both axes the length of the crop, the length of the resized image, and the start of the crop."""
        return (self.size[0], self.resized[0], self.top), (self.size[1], self.resized[1], self.left)

    def _placed(self, window: NDArray[np.uint8], padding: int | tuple[int, ...]) -> NDArray[np.uint8]:
        """Place the window in the upper left corner of a padded crop, and flip the crop if required."""
        if window.shape[:2] != self.size:
            crop = np.empty((*self.size, *window.shape[2:]), dtype=np.uint8)
            crop[...] = padding
            crop[: window.shape[0], : window.shape[1]] = window
        else:
            crop = window
        return crop[:, ::-1].copy() if self.flipped else crop.copy()


def _source_span(start: int, length: int, whole: int, original: int) -> tuple[int, int, float, float]:
    """Return the original pixels to read along one axis, and the exact window within them.

    The pixels include the neighbours for interpolation: one around each position, or more when shrinking.
    """
    scale = original / whole
    exact_start, exact_stop = start * scale, (start + length) * scale
    margin = int(max(1.0, scale)) + 2
    first = max(0, int(exact_start) - margin)
    last = min(original, int(exact_stop) + 1 + margin)
    return first, last, exact_start - first, min(exact_stop, original) - first


class Augmentation(Part):
    """Distribution of random crops.

    Args:
        crop: Height and width of the crop.
        scales: Range of the resizing factor.
        aspects: Range of an additional factor for the width.
        short_side: Initial length of the shorter side, before `scales`. Default: keep the size.
        flip: Probability of a horizontal flip.
        brightness: Largest number added to or subtracted from all pixels.

    >>> crop = Augmentation(crop=(769, 769)).draw(np.random.default_rng(0), size=(1024, 2048))
    >>> crop.size, crop.top + 769 <= crop.resized[0]
    ((769, 769), True)
    """

    crop: HeightWidth
    scales: ScaleRange = (0.5, 2.0)
    aspects: ScaleRange = (1.0, 1.0)
    short_side: SmallInt | None = None
    flip: Fraction = 0.5
    brightness: Annotated[int, Field(strict=True, ge=0, le=255)] = 10

    def draw(self, rng: Generator, size: HeightWidth) -> Crop:
        """Draw a crop of an image of this height and width."""
        scale = rng.uniform(*self.scales)
        if self.short_side is not None:
            scale *= self.short_side / min(size)
        aspect = rng.uniform(*self.aspects)
        resized = max(1, round(size[0] * scale)), max(1, round(size[1] * scale * aspect))
        top, left = (
            int(rng.integers(max(0, whole - length) + 1)) for whole, length in zip(resized, self.crop, strict=True)
        )
        flipped = bool(rng.random() < self.flip)
        brightness = int(rng.integers(-self.brightness, self.brightness + 1))
        return Crop(resized, top, left, self.crop, flipped, brightness)
