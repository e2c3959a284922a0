"""Exportable video networks: pixels in, logits and attention maps out."""

# B batch, K classes, T frames, H, W size of a frame

from collections.abc import Sequence

from torch import Tensor, nn

from dnlnet.backbones.pixels import Pixels
from dnlnet.deployment import Axes, Query, WithMaps


class ExportableVideo(WithMaps):
    """Network from clips (B, 3, T, H, W) to logits (B, K) and each block's maps of queries (x, y, time)."""

    takes = Axes("clip", ("batch", 3, "time", "height", "width"))

    def __init__(
        self, network: nn.Module, size: tuple[int, int], queries: Sequence[Query], pixels: Pixels, frames: int
    ) -> None:
        super().__init__(network, size, queries)
        self.pixels, self.frames = pixels, frames

    def logits(self, x: Tensor) -> Tensor:
        """Return logits (B, K)."""
        logits: Tensor = self.network(self.pixels.normalised(x))
        return logits
