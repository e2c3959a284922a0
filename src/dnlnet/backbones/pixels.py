"""Normalisation of pixels for a network: mean and std of each colour, red first."""

# B images

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Colours = tuple[float, float, float]


def _in_bytes(values: Colours) -> Colours:
    red, green, blue = (round(255 * value, 3) for value in values)  # the usual precision, such as 57.12
    return red, green, blue


# ImageNet's mean and std for pixels in 0..1.
UNIT_MEAN: Colours = (0.485, 0.456, 0.406)
UNIT_STD: Colours = (0.229, 0.224, 0.225)

# The same for pixels in 0..255.
MEAN = _in_bytes(UNIT_MEAN)
STD = _in_bytes(UNIT_STD)
CAFFE_MEAN: Colours = (122.7717, 115.9465, 102.9801)  # Caffe uses a std of 1, and blue first


def normalised(images: "Tensor", mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> "Tensor":
    """Normalise (B, 3, ...) pixels in 0..255 on their device: (x - mean) / std of each colour.

    >>> import torch
    >>> normalised(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))[0, :, 0, 0]
    tensor([-2.1179, -2.0357, -1.8044])
    """
    import torch

    shape = 3, *(1,) * (images.dim() - 2)
    # Filled on the device, because the copy of a new tensor would wait for it.
    middle, width = (
        torch.stack([torch.full((), value, device=images.device) for value in values]).view(shape)
        for values in (mean, std)
    )
    return images.to(torch.float32, copy=True).sub_(middle).div_(width)


@dataclass(frozen=True)
class Pixels:
    """Normalisation of a network's pixels.

    Args:
        mean, deviation: Mean and std of each colour, red first, for pixels in 0..255.
        blue_first: Order of the network's colours: blue first instead of red.
    """

    mean: tuple[float, ...] = MEAN
    deviation: tuple[float, ...] = STD
    blue_first: bool = False

    def normalised(self, images: "Tensor") -> "Tensor":
        """Normalise images (see the function `normalised`), and reverse their colours if needed."""
        pixels = normalised(images, self.mean, self.deviation)
        return pixels.flip(1) if self.blue_first else pixels

    def zero(self) -> tuple[float, ...]:
        """Return the colour that the network sees as 0, red first and normalised as for ImageNet.

        >>> [round(value, 3) for value in Pixels(mean=(0.0, 0.0, 0.0)).zero()]
        [-2.118, -2.036, -1.804]
        """
        return tuple((mean - usual) / width for mean, usual, width in zip(self.mean, MEAN, STD, strict=True))


IMAGENET = Pixels()
CAFFE = Pixels(CAFFE_MEAN, (1.0, 1.0, 1.0), blue_first=True)
