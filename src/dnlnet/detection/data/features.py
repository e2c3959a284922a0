"""Features of images below the first block of a detector."""

# H, W size of an image; C channels, h, w size of a map

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.images import HeightWidth, resized_image
from dnlnet.detection.data.objects import annotated_pixels
from dnlnet.detection.network import Detector
from dnlnet.detection.schema import InstanceData
from dnlnet.recipes.features import FrozenNetwork


class FlippedView(NamedTuple):
    """View of an image that is resized as the recipe says, and perhaps mirrored."""

    size: HeightWidth  # annotated size, before resizing
    flipped: bool = False

    @property
    def relative_size(self) -> float:
        """1, because resized images differ little in size."""
        return 1.0

    def __str__(self) -> str:
        height, width = self.size
        return f"{width}x{height}{'-flipped' if self.flipped else ''}"


class Extractor(FrozenNetwork):
    """Frozen layers of a detector.

    Args:
        network: Detector.
        data: Size of resized images.
        settings: Backbone settings of the recipe, which identify the features.
        precision: Precision of training.
    """

    def __init__(
        self, network: Detector, data: InstanceData, settings: Mapping[str, Any], precision: str = "float32"
    ) -> None:
        lower = network.lower()
        settings = {**settings, "short_side": data.short_side, "long_side": data.long_side}
        super().__init__(lower, settings, range(lower.count), precision)
        self.data, self.transform = data, network.transform

    def __call__(self, image: Path, view: FlippedView) -> list[Tensor]:
        """Return the maps (C, h, w) in float16, from fine to coarse; see `Lower`."""
        pixels = resized_image(annotated_pixels(image, view.size), self.data.resized(view.size))
        batch, _ = self.transform([to_tensor(pixels, view.flipped) / 255])
        return [maps[0] for maps in self.maps(batch.tensors)]


def to_tensor(pixels: NDArray[np.uint8], flipped: bool = False) -> Tensor:
    """Return pixels (H, W, 3), mirrored left to right if `flipped`, as a tensor (3, H, W)."""
    pixels = pixels[:, ::-1] if flipped else pixels
    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C"))  # a writable copy
