"""Logits of an image as a recipe asks for them: windows, sizes, mirrored."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from dnlnet.inference.windows import Network, Size, sliding_logits, starts


@dataclass(frozen=True)
class Inference:
    """How an image is looked at; logits of all looks are averaged at the image's own size.

    Args:
        window, stride: height and width of sliding windows; None looks at the whole image.
        short_side: the image is first brought to this length of its shorter side.
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
        base = 1.0 if self.short_side is None else self.short_side / min(size)
        total: Tensor | None = None
        for scale in self.scales:
            scaled = self._resized(image, [max(1, round(length * base * scale)) for length in size])
            for mirrored in (False, True)[: 1 + self.flip]:
                logits = self._look(network, scaled.flip(-1) if mirrored else scaled)
                logits = self._resized(logits.flip(-1) if mirrored else logits, size)
                total = logits if total is None else total + logits
        assert total is not None  # there is at least one scale
        looks = len(self.scales) * (1 + self.flip)
        return total if looks == 1 else total / looks

    def _look(self, network: Network, image: Tensor) -> Tensor:
        if self.window is None or self.stride is None:
            return network(image)
        return sliding_logits(network, image, self.window, self.stride, self.batch)

    def _resized(self, x: Tensor, size: list[int] | tuple[int, ...]) -> Tensor:
        """Bilinear; the same tensor if it has the size."""
        if tuple(x.shape[-2:]) == tuple(size):
            return x
        return F.interpolate(x, tuple(size), mode="bilinear", align_corners=self.align_corners)
