"""Pictures with what blocks made of them: what figures and pages show."""

# H, W size of the picture; h, w size of a block's map

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.analysis.capture import capture
from dnlnet.attention import Terms
from dnlnet.data.classes import Classes
from dnlnet.inference import Inference
from dnlnet.tasks.prediction import SegmentationModel

Point = tuple[int, int]  # (row, column) in pixels of the picture


@dataclass(frozen=True)
class View:
    """What one block of one model made of a picture.

    Args:
        title: says which model, and which of its blocks.
        terms: of the block, on this picture alone.
        prediction: (H, W), the classes that the model found, if it looks for any.
        covered: the share of the block's map, in height and width, that the picture takes: a detector pads pictures
            below and on the right.
    """

    title: str
    terms: Terms
    prediction: NDArray[np.uint8] | None = None
    covered: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if len(self.terms.size) != 2:
            raise ValueError(f"a view is of a 2d block, this one has a map of {self.terms.size}")
        if not all(0 < share <= 1 for share in self.covered):
            raise ValueError(f"a picture covers a share of the map in 0..1, got {self.covered}")

    def position(self, point: Point, picture: "Picture") -> Point:
        """The position on the block's map in whose cell a pixel of the picture lies.

        Position i of n covers the i-th n-th of the map, as when labels are averaged over it.
        """
        row, column = (
            min(int((pixel + 0.5) / length * share * count), count - 1)
            for pixel, length, share, count in zip(point, picture.size, self.covered, self.terms.size, strict=True)
        )
        return row, column

    def over_picture(self, attention: Tensor, picture: "Picture") -> Tensor:
        """A map (h, w) brought to the pixels of the picture, (H, W), linearly between the centres of its cells."""
        height, width = picture.size
        whole = [ceil(length / share) for length, share in zip(picture.size, self.covered, strict=True)]
        smooth = F.interpolate(attention[None, None].float().cpu(), whole, mode="bilinear", align_corners=False)
        return smooth[0, 0, :height, :width]


@dataclass(frozen=True)
class Picture:
    """A picture and the views of it.

    Args:
        name: to call it by.
        pixels: (H, W, 3) in 0..255.
        views: of blocks of one or several models.
        labels: (H, W), the true classes, if they are known; IGNORE where not.
        classes: what labels and predictions mean.
    """

    name: str
    pixels: NDArray[np.uint8]
    views: Sequence[View]
    labels: NDArray[np.uint8] | None = None
    classes: Classes | None = None

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be (H, W, 3) of uint8, got {self.pixels.shape} of {self.pixels.dtype}")
        for name, given in (("labels", self.labels), *((view.title, view.prediction) for view in self.views)):
            if given is not None and given.shape != self.size:
                raise ValueError(f"{name}: {given.shape} labels for a picture of {self.size}")
            if given is not None and self.classes is None:
                raise ValueError(f"{name}: there are labels but no classes to say what they mean")
        if not self.views:
            raise ValueError(f"{self.name} has no views; there is nothing to show")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]

    def require_inside(self, point: Point) -> Point:
        """The point, if it is one of the picture's pixels."""
        if not all(0 <= pixel < length for pixel, length in zip(point, self.size, strict=True)):
            (row, column), (height, width) = point, self.size
            raise ValueError(f"point x={column}, y={row} is outside of {self.name}: it is {width} x {height} pixels")
        return point


def segmentation_views(title: str, model: SegmentationModel, pixels: NDArray[np.uint8]) -> list[View]:
    """Views of every block of a segmentation model, which looks at the picture whole and once."""
    once = SegmentationModel(
        model.network, model.classes, Inference(short_side=model.inference.short_side), model.device
    )
    with capture(model.network) as blocks:
        prediction = once.predict(pixels, max_pixels=pixels.shape[0] * pixels.shape[1])
    view = View(title, next(iter(blocks.values())), prediction.labels)
    if len(blocks) == 1:
        return [view]
    return [replace(view, title=f"{title}: {name}", terms=terms) for name, terms in blocks.items()]
