"""Random crops for training, of which only the needed window is ever resized.

The usual way resizes the whole picture and cuts the crop out of it. Here the crop's window is found first, in the
coordinates of the resized picture, and those pixels alone are computed; they are the same, up to rounding.
"""

# H, W size of a picture

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.classes import IGNORE
from dnlnet.data.image_files import HeightWidth

PADDING = (124, 116, 104)  # ImageNet's mean, rounded: nearly zero once it is normalised


class Picture(Protocol):
    """A picture that parts can be taken of: a PIL image, or one that is read only where it is needed."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        ...

    def crop(self, box: tuple[int, int, int, int]) -> Image.Image:
        """The part between left, upper, right and lower."""
        ...


@dataclass(frozen=True)
class Crop:
    """One crop: which window of the picture, resized to what, and how it is changed.

    Args:
        resized: size that the whole picture would be resized to.
        top, left: where the crop begins in the resized picture.
        size: of the crop; what reaches beyond the picture is padded, at the bottom and on the right.
        flipped: mirrored left to right, padding included.
        brightness: added to every pixel, within 0..255.
    """

    resized: HeightWidth
    top: int
    left: int
    size: HeightWidth
    flipped: bool = False
    brightness: int = 0

    def image(self, picture: Picture) -> NDArray[np.uint8]:
        """The crop of an RGB picture, (H, W, 3)."""
        window = self._window(picture, Image.Resampling.BILINEAR)
        if self.brightness:
            window = window.point([min(max(value + self.brightness, 0), 255) for value in range(256)] * 3)
        return self._placed(np.asarray(window), PADDING)

    def labels(self, picture: Picture) -> Image.Image:
        """The part of a label map that the crop shows, without padding, its values as they are."""
        return self._window(picture, Image.Resampling.NEAREST)

    def padded_labels(self, window: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The crop of the labels, (H, W), from what `labels` showed, decoded."""
        return self._placed(window, IGNORE)

    def _window(self, picture: Picture, resampling: Image.Resampling) -> Image.Image:
        """The pixels that resizing the whole picture and cropping would give, from those they depend on."""
        height, width = (min(size, whole - start) for size, whole, start in self._axes())
        boxes = [
            _source_span(start, length, whole, original)
            for (_, whole, start), length, original in zip(
                self._axes(), (height, width), reversed(picture.size), strict=True
            )
        ]
        (upper, lower, y0, y1), (left, right, x0, x1) = boxes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # of a part of what is decoded already
            part = picture.crop((left, upper, right, lower))
        return part.resize((width, height), resampling, box=(x0, y0, x1, y1))

    def _axes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Of rows and columns: the crop's length, the resized picture's length, and where the crop begins."""
        return (self.size[0], self.resized[0], self.top), (self.size[1], self.resized[1], self.left)

    def _placed(self, window: NDArray[np.uint8], padding: int | tuple[int, ...]) -> NDArray[np.uint8]:
        """The window in the upper left of a crop of this padding, then flipped."""
        if window.shape[:2] != self.size:
            crop = np.empty((*self.size, *window.shape[2:]), dtype=np.uint8)
            crop[...] = padding
            crop[: window.shape[0], : window.shape[1]] = window
        else:
            crop = window
        return crop[:, ::-1].copy() if self.flipped else crop.copy()


def _source_span(start: int, length: int, whole: int, original: int) -> tuple[int, int, float, float]:
    """Along one axis: the pixels to take of the original, and the exact window within them.

    Interpolation looks at neighbours: one pixel around each position, as many as are merged into one when shrinking.
    """
    scale = original / whole
    exact_start, exact_stop = start * scale, (start + length) * scale
    margin = int(max(1.0, scale)) + 2
    first = max(0, int(exact_start) - margin)
    last = min(original, int(exact_stop) + 1 + margin)
    return first, last, exact_start - first, min(exact_stop, original) - first


@dataclass(frozen=True)
class Augmentation:
    """How crops are drawn.

    Args:
        crop: height and width of the crop.
        scales: the picture is resized by a factor drawn uniformly from this range.
        aspects: its width is resized by a further factor from this range.
        short_side: the picture is first resized to this length of its shorter side; None leaves it as it is.
        flip: probability of a horizontal flip.
        brightness: the largest number added to or subtracted from all pixels.

    >>> crop = Augmentation((769, 769)).draw(np.random.default_rng(0), size=(1024, 2048))
    >>> crop.size, crop.top + 769 <= crop.resized[0]
    ((769, 769), True)
    """

    crop: HeightWidth
    scales: tuple[float, float] = (0.5, 2.0)
    aspects: tuple[float, float] = (1.0, 1.0)
    short_side: int | None = None
    flip: float = 0.5
    brightness: int = 10

    def __post_init__(self) -> None:
        if min(self.crop) < 1:
            raise ValueError(f"a crop needs at least 1 x 1 pixel, got {self.crop}")
        for name in ("scales", "aspects"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} must be a range above 0, from low to high, got {low} .. {high}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip is a probability, got {self.flip}")
        if self.short_side is not None and self.short_side < 1:
            raise ValueError(f"short_side must be at least 1 pixel, got {self.short_side}")
        if not 0 <= self.brightness <= 255:
            raise ValueError(f"brightness must be within 0..255, got {self.brightness}")

    def draw(self, rng: Generator, size: HeightWidth) -> Crop:
        """A crop of a picture of this height and width; the same for the same state of the generator."""
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
