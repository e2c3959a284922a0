"""Image with the attention of blocks or heads over it, as figures and pages draw it, and its default query points."""

# H, W size of the image; h, w size of a block's map

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, isqrt
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import AttentionMaps, Terms
from dnlnet.data.classes import IGNORE, Classes
from dnlnet.lens.show.strength import brightness, times_uniform

Point = tuple[int, int]  # (row, column) in pixels of the image
_CANDIDATES = 6  # interior points, and rows and columns of a grid of points, compared by `start_point`


@dataclass(frozen=True)
class LayerHead:
    """Position of an attention map in a transformer.

    Args:
        model: Title of the model.
        layer: Number of the layer among the model's attentions, and its name.
        head: Head number, or a note that the map is the mean over heads.

    >>> LayerHead("vit", "5 (blocks.5.attn)", "mean of 6 heads").title
    'vit: layer 5 (blocks.5.attn), mean of 6 heads'
    """

    model: str
    layer: str
    head: str

    @property
    def title(self) -> str:
        """Model, layer and head in words."""
        return f"{self.model}: {self.layer_and_head}"

    @property
    def layer_and_head(self) -> str:
        """Layer and head in words."""
        return f"layer {self.layer}, {self.head}"


@dataclass(frozen=True)
class DetectedBox:
    """Detected object: class, confidence, and left, top, right and bottom in pixels."""

    label: int
    score: float
    corners: tuple[float, float, float, float]


@dataclass(frozen=True)
class AttentionView:
    """Attention of one block or head over one image.

    Args:
        title: Name of the model, and of the block if there are several.
        terms: Terms of the block on this image.
        prediction: Predicted classes (H, W), if the model predicts any.
        covered: Share of the map's height and width that the image covers; the rest is padding.
        place: Layer and head, for a transformer.
        boxes: Detected objects, for a detector.
    """

    title: str
    terms: Terms
    prediction: NDArray[np.uint8] | None = None
    covered: tuple[float, float] = (1.0, 1.0)
    place: LayerHead | None = None
    boxes: Sequence[DetectedBox] = ()

    def __post_init__(self) -> None:
        if len(self.terms.size) != 2:
            raise ValueError(f"{self.title}: expected a 2d block, got one with a map of {self.terms.size}")
        if not all(0 < share <= 1 for share in self.covered):
            raise ValueError(f"{self.title}: covered must be in 0..1, got {self.covered}")

    def position(self, point: Point, image: "AttendedImage") -> Point:
        """Return the position on the block's map whose cell contains a pixel of the image."""
        row, column = (
            cell_of(pixel, length, count, share)
            for pixel, length, count, share in zip(point, image.size, self.terms.size, self.covered, strict=True)
        )
        return row, column

    def cell_size(self, image: "AttendedImage") -> tuple[float, float]:
        """Return the height and width of a position on the block's map, in pixels of the image."""
        height, width = (
            length / share / count
            for length, share, count in zip(image.size, self.covered, self.terms.size, strict=True)
        )
        return height, width

    def over_image(self, attention: Tensor, image: "AttendedImage") -> Tensor:
        """Resize a map (h, w) to the pixels of the image (H, W), linearly between the centres of its cells."""
        height, width = image.size
        padded = [ceil(length / share) for length, share in zip(image.size, self.covered, strict=True)]
        smooth = F.interpolate(attention[None, None].float().cpu(), padded, mode="bilinear", align_corners=False)
        return smooth[0, 0, :height, :width]


@dataclass(frozen=True)
class AttendedImage:
    """Image with views of its attention.

    Args:
        name: Name in titles and messages.
        pixels: (H, W, 3) in 0..255.
        views: Views of the blocks of one or several models.
        labels: True classes (H, W), if known; IGNORE for unlabelled pixels.
        classes: Classes of labels and predictions.
        start: Point that a page shows first. Default: `start_point` chooses one.
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
                raise ValueError(f"{name}: expected labels of {self.size} like the image, got {given.shape}")
            if given is not None and self.classes is None:
                raise ValueError(f"{name}: labels need classes; pass classes=")
        if not self.views:
            raise ValueError(f"{self.name} has no views; there is nothing to show")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]

    def interior_points(self, count: int = 3) -> list[Point]:
        """Return default query points: well inside the thickest regions."""
        labels = self.views[0].prediction if self.labels is None else self.labels
        if labels is None or self.classes is None:
            return [(self.size[0] // 2, self.size[1] // 2)]
        return interior_points(labels, count, len(self.classes))

    def start_point(self) -> Point:
        """Return `start`, or the point whose map shows most: neither uniform attention nor a single bright dot.

        The score is the covariance of the brightness of the point's pairwise map and of its class, over the cells,
        times the share of the class around the point; without classes, the variance of the brightness. The map is
        that of `first_view`.
        """
        points, view = self.interior_points(_CANDIDATES), self.views[self.first_view]
        if self.start is not None or view.terms.pairwise is None:
            return self.start or points[0]
        rows, columns = ([cell_of(step, _CANDIDATES, length) for step in range(_CANDIDATES)] for length in self.size)
        points += [(row, column) for row in rows for column in columns]
        maps = view.terms.maps([view.position(point, self) for point in points]).pairwise
        assert maps is not None
        labels = view.prediction if self.labels is None else self.labels

        @cache
        def shares(label: int, size: tuple[int, ...]) -> Tensor:
            assert labels is not None
            return class_share(labels, label, size)

        def score(number: int) -> float:
            bright = brightness(times_uniform(maps[0, number].float().cpu()))
            if labels is None or view.covered != (1, 1):
                return float(bright.var(correction=0))
            label = int(labels[points[number]])
            if self.class_name(label) is None:
                return 0.0
            cells = shares(label, view.terms.key_size)
            row, column = (
                cell_of(at, length, _CANDIDATES) for at, length in zip(points[number], self.size, strict=True)
            )
            around = shares(label, (_CANDIDATES, _CANDIDATES))[row, column]
            return float(around * ((bright * cells).mean() - bright.mean() * cells.mean()))

        return points[max(range(len(points)), key=score)]

    @property
    def first_view(self) -> int:
        """Index of the view that a page shows first: for a single transformer, at two thirds of its depth.

        Early layers attend to edges and colours, later ones to objects.
        """
        one = {None if view.place is None else (view.place.model, view.place.head) for view in self.views}
        return 2 * (len(self.views) - 1) // 3 if len(one) == 1 and None not in one else 0

    def class_name(self, label: int) -> str | None:
        """Return the name of a class, or None for a label that is not a class."""
        if self.classes is None or label >= len(self.classes):
            return None
        return self.classes.names[label]

    def require_inside(self, points: Sequence[Point]) -> None:
        """Raise if there are no points, or one lies outside the image."""
        if not points:
            raise ValueError("no query points; pass at least one (row, column)")
        height, width = self.size
        for row, column in points:
            if not (0 <= row < height and 0 <= column < width):
                raise ValueError(
                    f"point x={column}, y={row} is outside {self.name}, which has {width} x {height} pixels"
                )


@runtime_checkable
class ImageModel(Protocol):
    """Trained image network with attention views."""

    @property
    def classes(self) -> Classes | None:
        """Classes of its pixels, if it predicts any."""
        ...

    def attention_views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Return a view of each block, from one pass over the image (H, W, 3)."""
        ...


def attend_image(
    models: Mapping[str, ImageModel], name: str, pixels: NDArray[np.uint8], labels: NDArray[np.uint8] | None = None
) -> AttendedImage:
    """Run models (by title) on one image and return it with the attention of all their blocks."""
    views = [view for title, model in models.items() for view in model.attention_views(title, pixels)]
    classes = next((model.classes for model in models.values() if model.classes is not None), None)
    return AttendedImage(name, pixels, views, labels, classes)


def block_views(
    title: str,
    blocks: Mapping[str, Terms],
    prediction: NDArray[np.uint8] | None,
    covered: tuple[float, float] = (1.0, 1.0),
) -> list[AttentionView]:
    """Return a view of each block; titles name the block where there are several."""
    return [
        AttentionView(title if len(blocks) == 1 else f"{title}: {name}", terms, prediction, covered)
        for name, terms in blocks.items()
    ]


def maps_by_term(maps: AttentionMaps) -> dict[str, Tensor]:
    """Return the maps that a block has, by term: "pairwise", "unary" and "combined"."""
    named = {"pairwise": maps.pairwise, "unary": maps.unary, "combined": maps.combined}
    return {term: attention for term, attention in named.items() if attention is not None}


def class_share(labels: NDArray[np.uint8], label: int, size: Sequence[int]) -> Tensor:
    """Return the share of one class in each cell of a map of this size (h, w)."""
    height, width = size
    return F.adaptive_avg_pool2d(torch.from_numpy(labels == label).float()[None], (height, width))[0]


def cell_of(index: int, length: int, count: int, covered: float = 1.0) -> int:
    """Return which of `count` cells contains pixel (or frame) `index` of `length`.

    The pixels cover the share `covered` of the cells.

    >>> [cell_of(pixel, 6, 3) for pixel in range(6)]
    [0, 0, 1, 1, 2, 2]
    """
    return min(int((index + 0.5) / length * covered * count), count - 1)


def interior_points(labels: NDArray[np.uint8], count: int = 3, classes: int = IGNORE) -> list[Point]:
    """Return the pixel farthest from any border of `count` classes, thickest region first.

    Labels from `classes` on are ignored. Without any class, return the centre of the image.

    >>> labels = np.zeros((9, 9), dtype=np.uint8)
    >>> labels[:, 6:] = 1
    >>> interior_points(labels, count=2)
    [(2, 2), (1, 7)]
    """
    found = [_largest_square(labels == label) for label in np.unique(labels) if label < classes]
    thickest = sorted((-radius, centre) for radius, centre in found)[:count]
    return [centre for _, centre in thickest] or [(labels.shape[0] // 2, labels.shape[1] // 2)]


def _largest_square(mask: NDArray[np.bool_]) -> tuple[int, Point]:
    """Return the radius r and the centre of the largest square of 2 r + 1 pixels inside a mask, the first of several.

    Its centre is farthest from the border. SciPy's distance transform finds the same, but takes longer to import.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    inside = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    # Sums from the corner: four of them give the number of pixels in any square.
    sums = np.pad(inside.cumsum(axis=0, dtype=np.int32).cumsum(axis=1, dtype=np.int32), ((1, 0), (1, 0)))

    def full(radius: int) -> NDArray[np.bool_]:
        side = 2 * radius + 1
        lower, upper = sums[side:], sums[:-side]
        filled: NDArray[np.bool_] = (
            lower[:, side:] - lower[:, :-side] - upper[:, side:] + upper[:, :-side] == side * side
        )
        return filled

    radius, most = 0, (min(*inside.shape, isqrt(int(sums[-1, -1]))) - 1) // 2
    while radius < most:
        middle = (radius + most + 1) // 2
        if full(middle).any():
            radius = middle
        else:
            most = middle - 1
    row, column = divmod(int(full(radius).argmax()), inside.shape[1] - 2 * radius)
    return radius, (int(rows[0]) + row + radius, int(columns[0]) + column + radius)
