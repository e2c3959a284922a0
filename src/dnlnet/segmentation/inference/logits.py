"""Logits of an image as a recipe asks for them: windows, sizes, mirrored."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch.nn.functional as F
from torch import Tensor

from dnlnet.segmentation.inference.windows import Network, Size, corners, sliding_logits, starts

LEAST_SIDE = 5  # pixels; after two strides the tiny network's padding by reflection needs two positions
_LONGEST = 8  # of a picture brought to `short_side`, in shorter sides: a stripe would become enormous


@dataclass(frozen=True)
class Inference:
    """How an image is looked at; logits of all looks are averaged at the image's own size.

    Args:
        window, stride: height and width of sliding windows; None looks at the whole image.
        short_side: the image is first brought to this length of its shorter side; less, where the longer one would
            pass eight times that.
        scales: and then to each of these multiples.
        flip: each also with left and right exchanged.
        batch: windows given to the network at once.
        align_corners: resize with corners on corners; best as the network itself does.

    >>> import torch
    >>> Inference(scales=(0.5, 1.0), flip=True)(lambda x: x[:, :1], torch.ones(1, 3, 8, 12)).shape
    torch.Size([1, 1, 8, 12])
    """

    window: Size | None = None
    stride: Size | None = None
    short_side: int | None = None
    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    batch: int = 4
    align_corners: bool = True

    def __post_init__(self) -> None:
        if (self.window is None) != (self.stride is None):
            raise ValueError("windows need a size and a stride: give both, or none")
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"scales must be positive, and at least one, got {self.scales}")
        if self.window is not None and self.stride is not None:
            for step, length in zip(self.stride, self.window, strict=True):
                starts(length, length, step)  # refuses a stride that leaves gaps

    def __call__(self, network: Network, image: Tensor) -> Tensor:
        """Logits (1, K, H, W) of an image (1, 3, H, W)."""
        size = image.shape[-2:]
        total: Tensor | None = None
        for scaled_size in self._sizes(size):
            scaled = self._resized(image, scaled_size)
            for mirrored in (False, True)[: 1 + self.flip]:
                logits = self._look(network, scaled.flip(-1) if mirrored else scaled)
                logits = self._resized(logits.flip(-1) if mirrored else logits, size)
                total = logits if total is None else total + logits
        assert total is not None  # there is at least one scale
        looks = len(self.scales) * (1 + self.flip)
        return total if looks == 1 else total / looks

    def passes(self, size: Size) -> int:
        """How often the network is asked about an image of this height and width.

        >>> Inference(window=(4, 4), stride=(3, 3), scales=(1.0, 2.0), flip=True).passes((4, 7))
        10
        """
        if self.window is None or self.stride is None:
            looks = len(self.scales)
        else:
            windows = (len(corners(scaled, self.window, self.stride)) for scaled in self._sizes(size))
            looks = sum(ceil(count / self.batch) for count in windows)
        return looks * (1 + self.flip)

    def covered(self, size: Size) -> tuple[float, float]:
        """The share of what the network is given, in height and width, that a whole image of this size takes.

        >>> Inference().covered((1, 40)), Inference(short_side=20).covered((1, 2))
        ((0.2, 1.0), (1.0, 1.0))
        """
        height, width = self._sizes(size)[0]
        return height / max(height, LEAST_SIDE), width / max(width, LEAST_SIDE)

    def _sizes(self, size: Sequence[int]) -> list[Size]:
        """The heights and widths at which an image of this size is looked at."""
        base = 1.0
        if self.short_side is not None:
            base = min(self.short_side / min(size), _LONGEST * self.short_side / max(size))
        height, width = size
        return [(max(1, round(height * base * scale)), max(1, round(width * base * scale))) for scale in self.scales]

    def _look(self, network: Network, image: Tensor) -> Tensor:
        if self.window is None or self.stride is None:
            return _with_room(network, image)
        return sliding_logits(
            lambda windows: _with_room(network, windows), image, self.window, self.stride, self.batch
        )

    def _resized(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """Bilinear; the same tensor if it has the size."""
        if tuple(x.shape[-2:]) == tuple(size):
            return x
        return F.interpolate(x, tuple(size), mode="bilinear", align_corners=self.align_corners)


def _with_room(network: Network, images: Tensor) -> Tensor:
    """Logits of images, which are looked at with their last rows and columns repeated where they are very small."""
    height, width = images.shape[-2:]
    below, right = max(0, LEAST_SIDE - height), max(0, LEAST_SIDE - width)
    if not (below or right):
        return network(images)
    return network(F.pad(images, (0, right, 0, below), mode="replicate"))[..., :height, :width]
