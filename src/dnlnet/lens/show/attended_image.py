"""Pictures with what blocks made of them: what figures and pages show."""

# H, W size of the picture; h, w size of a block's map

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.data.classes import Classes
from dnlnet.lens.show.query_points import Point, interior_points

UNIFORM = 1.2  # times its mean that the strongest value of a map reaches which says nothing
LEARNT_LITTLE = "nearly uniform: this block has learnt little yet"
_TRIED = 6  # points, to find a telling one


@dataclass(frozen=True)
class LayerHead:
    """Where in a transformer an attention is.

    Args:
        model: what to call it.
        layer: its number among the attentions of the model, and its name there.
        head: which one, or that it is the mean of all.

    >>> LayerHead("vit", "5 (blocks.5.attn)", "mean of 6 heads").title
    'vit: layer 5 (blocks.5.attn), mean of 6 heads'
    """

    model: str
    layer: str
    head: str

    @property
    def title(self) -> str:
        """All of it in words."""
        return f"{self.model}: {self.inside}"

    @property
    def inside(self) -> str:
        """Layer and head in words."""
        return f"layer {self.layer}, {self.head}"


@dataclass(frozen=True)
class DetectedBox:
    """An object that a detector found: its class, how sure that is, and left, top, right, bottom in pixels."""

    label: int
    score: float
    corners: tuple[float, float, float, float]


@dataclass(frozen=True)
class AttentionView:
    """What one block, or head, of one model made of a picture.

    Args:
        title: says which model, and which of its blocks.
        terms: of the block, on this picture alone.
        prediction: (H, W), the classes that the model found, if it looks for any.
        covered: the share of the block's map, in height and width, that the picture takes: a detector pads pictures
            below and on the right, and very small ones are padded for all.
        place: in a transformer, for a page to choose by layer and head.
        boxes: of the objects that a detector found.
    """

    title: str
    terms: Terms
    prediction: NDArray[np.uint8] | None = None
    covered: tuple[float, float] = (1.0, 1.0)
    place: LayerHead | None = None
    boxes: Sequence[DetectedBox] = ()

    def __post_init__(self) -> None:
        if len(self.terms.size) != 2:
            raise ValueError(f"a view is of a 2d block, this one has a map of {self.terms.size}")
        if not all(0 < share <= 1 for share in self.covered):
            raise ValueError(f"a picture covers a share of the map in 0..1, got {self.covered}")

    def position(self, point: Point, picture: "AttendedImage") -> Point:
        """The position on the block's map in whose cell a pixel of the picture lies.

        Position i of n covers the i-th n-th of the map, as when labels are averaged over it.
        """
        row, column = (
            cell_of(pixel, length, count, share)
            for pixel, length, count, share in zip(point, picture.size, self.terms.size, self.covered, strict=True)
        )
        return row, column

    def over_picture(self, attention: Tensor, picture: "AttendedImage") -> Tensor:
        """A map (h, w) brought to the pixels of the picture, (H, W), linearly between the centres of its cells."""
        height, width = picture.size
        whole = [ceil(length / share) for length, share in zip(picture.size, self.covered, strict=True)]
        smooth = F.interpolate(attention[None, None].float().cpu(), whole, mode="bilinear", align_corners=False)
        return smooth[0, 0, :height, :width]


@dataclass(frozen=True)
class AttendedImage:
    """A picture and the views of it.

    Args:
        name: to call it by.
        pixels: (H, W, 3) in 0..255.
        views: of blocks of one or several models.
        labels: (H, W), the true classes, if they are known; IGNORE where not.
        classes: what labels and predictions mean.
        start: the point to begin with; None leaves it to `start_point`.
    """

    name: str
    pixels: NDArray[np.uint8]
    views: Sequence[AttentionView]
    labels: NDArray[np.uint8] | None = None
    classes: Classes | None = None
    start: Point | None = None

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

    def interior_points(self, count: int = 3) -> list[Point]:
        """Points to look at if nobody has chosen any: well inside the thickest regions."""
        labels = self.views[0].prediction if self.labels is None else self.labels
        if labels is None or self.classes is None:
            return [(self.size[0] // 2, self.size[1] // 2)]
        return interior_points(torch.from_numpy(labels), count, len(self.classes))

    def start_point(self) -> Point:
        """Of some points well inside regions, that whose attention prefers its own class most.

        That is the share of the pairwise map of the first view on the class, less the class's share of the picture.
        Without a pairwise term or classes it is the first of the points. A point that was asked for comes before all.
        """
        if self.start is not None:
            return self.start
        points, view = self.interior_points(_TRIED), self.views[0]
        labels = view.prediction if self.labels is None else self.labels
        if labels is None or view.terms.pairwise is None or view.covered != (1, 1):
            return points[0]
        maps = view.terms.maps([view.position(point, self) for point in points]).pairwise
        assert maps is not None
        height, width = view.terms.key_size

        def excess(number: int) -> float:
            same = torch.from_numpy(labels == labels[points[number]]).float()
            cells = F.adaptive_avg_pool2d(same[None], (height, width))[0]
            return float((maps[0, number].cpu().float() * cells).sum() - cells.mean())

        return points[max(range(len(points)), key=excess)]

    def class_name(self, label: int) -> str | None:
        """The name of a class; None for a label that is none."""
        if self.classes is None or label >= len(self.classes):
            return None
        return self.classes.names[label]

    def require_inside(self, point: Point) -> Point:
        """The point, if it is one of the picture's pixels."""
        if not all(0 <= pixel < length for pixel, length in zip(point, self.size, strict=True)):
            (row, column), (height, width) = point, self.size
            raise ValueError(f"point x={column}, y={row} is outside of {self.name}: it is {width} x {height} pixels")
        return point


@runtime_checkable
class ImageModel(Protocol):
    """A trained network that looks at pictures."""

    @property
    def classes(self) -> Classes | None:
        """What its outputs mean, if it looks for classes of pixels."""
        ...

    def views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Views of every block, of one pass over the whole picture (H, W, 3)."""
        ...


def classes_of(models: Iterable[ImageModel]) -> Classes | None:
    """The classes of the first model that knows any."""
    return next((model.classes for model in models if model.classes is not None), None)


def is_nearly_uniform(attention: Tensor) -> bool:
    """Whether no value is much above the mean; scaled to its own strongest value it would look bright everywhere.

    >>> is_nearly_uniform(torch.tensor([1.0, 1.1])), is_nearly_uniform(torch.tensor([1.0, 1.0, 2.0]))
    (True, False)
    """
    return bool(attention.max() <= UNIFORM * attention.mean())


def cell_of(index: int, length: int, count: int, covered: float = 1.0) -> int:
    """The one of `count` cells in which pixel (or frame) `index` of `length` lies, if they cover that share of them.

    >>> [cell_of(pixel, 6, 3) for pixel in range(6)]
    [0, 0, 1, 1, 2, 2]
    """
    return min(int((index + 0.5) / length * covered * count), count - 1)


def block_views(
    title: str,
    blocks: Mapping[str, Terms],
    prediction: NDArray[np.uint8] | None,
    covered: tuple[float, float] = (1.0, 1.0),
) -> list[AttentionView]:
    """A view of each block, named where there are several."""
    return [
        AttentionView(title if len(blocks) == 1 else f"{title}: {name}", terms, prediction, covered)
        for name, terms in blocks.items()
    ]
