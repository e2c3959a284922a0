"""Attention drawn over the image it was computed from."""

# H, W size of the image

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import AttentionMaps
from dnlnet.data.classes import Classes
from dnlnet.files import written_whole

Point = tuple[int, int]
Pixels = NDArray[np.float32] | NDArray[np.uint8]  # (H, W, 3) in 0..1 or 0..255

_MARKS = ("#00d5ff", "#7dff6a", "#ff5ad1", "#ffe14d")
_SIDE = 2.35  # inches of one panel


def attention_figure(
    image: Tensor,
    maps: AttentionMaps,
    queries: Sequence[Point],
    classes: Classes,
    *,
    labels: Tensor | None = None,
    prediction: Tensor | None = None,
    title: str | None = None,
) -> Figure:
    """The image with its query points, its labels, and the attention of each term of the block.

    Args:
        image: (3, H, W) in 0..1.
        maps: attention of one image, with a pairwise map for each query.
        queries: (row, column) of the query points in pixels of the image.
        classes: names and colours of the labels.
        labels: (H, W) true classes, if known; with them, each map says how much of it is on the query's class.
        prediction: (H, W) predicted classes, if any.
        title: a line above all.

    >>> maps = AttentionMaps(torch.rand(1, 1, 4, 6), torch.rand(1, 4, 6), torch.rand(1, 1, 4, 6))
    >>> figure = attention_figure(torch.rand(3, 16, 24), maps, [(8, 12)], Classes(["sea"], [(0, 0, 255)]))
    >>> len(figure.axes)
    4
    """
    _check(image, maps, queries, labels, prediction)
    pixels = image.detach().cpu().permute(1, 2, 0).numpy().clip(0, 1)
    above = 1 + (labels is not None) + (prediction is not None) + 1  # the legend is the last
    below = (maps.unary is not None) + (0 if maps.pairwise is None else len(queries))
    columns = max(above, below)
    row = _SIDE * pixels.shape[0] / pixels.shape[1] + 0.5
    figure = Figure(figsize=(columns * (_SIDE + 0.12), 2 * row + (0.4 if title else 0.1)), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold")
    grid = figure.add_gridspec(2, columns)
    top = (figure.add_subplot(grid[0, column]) for column in range(above))
    bottom = (figure.add_subplot(grid[1, column]) for column in range(below))

    _panel(next(top), pixels, "image and query points", marks=list(enumerate(queries)))
    if labels is not None:
        _panel(next(top), classes.paint(labels.cpu().numpy()), "ground truth")
    if prediction is not None:
        _panel(next(top), classes.paint(prediction.cpu().numpy()), "prediction")
    _legend(next(top), classes)
    if maps.unary is not None:
        _panel(next(bottom), _heat(pixels, maps.unary[0]), "unary: one map for all queries")
    if maps.pairwise is not None:
        for number, (point, attention) in enumerate(zip(queries, maps.pairwise[0], strict=True)):
            name = f"pairwise of {number + 1}"
            if labels is not None:
                name += _share(attention, labels, point, classes)
            _panel(next(bottom), _heat(pixels, attention), name, marks=[(number, point)])
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as an image file, whole or not at all."""
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150, facecolor="white")


def interior_points(labels: Tensor, count: int = 3) -> list[Point]:
    """For the `count` classes with the thickest regions, the pixel farthest from any border, thickest first.

    >>> labels = torch.zeros(9, 9, dtype=torch.int64)
    >>> labels[:, 6:] = 1
    >>> interior_points(labels, count=2)
    [(2, 2), (1, 7)]
    """
    found: list[tuple[float, Point]] = []
    for label in labels.unique().tolist():
        inside = (labels == label).float()[None]
        depth = inside.clone()
        while inside.any():  # each erosion takes one pixel off, at the edge of the image as well
            inside = -F.max_pool2d(-F.pad(inside, (1, 1, 1, 1)), kernel_size=3, stride=1)
            depth += inside
        row, column = divmod(int(depth.flatten().argmax()), labels.shape[1])
        found.append((-float(depth.max()), (row, column)))
    return [point for _, point in sorted(found)[:count]]


def _panel(axes: Axes, pixels: Pixels, title: str, marks: Sequence[tuple[int, Point]] = ()) -> None:
    axes.imshow(pixels, interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    for number, (y, x) in marks:
        colour = _MARKS[number % len(_MARKS)]
        axes.plot(x, y, "o", markersize=9, markerfacecolor=colour, markeredgecolor="black", markeredgewidth=1.2)
        axes.annotate(str(number + 1), (x, y), ha="center", va="center_baseline", fontsize=6.5, fontweight="bold")


def _legend(axes: Axes, classes: Classes) -> None:
    axes.set_axis_off()
    handles = [Rectangle((0, 0), 1, 1, color=[part / 255 for part in colour]) for colour in classes.palette]
    axes.legend(handles, classes.names, loc="center", frameon=False, fontsize=10, handlelength=1.2, handleheight=1.2)


def _heat(pixels: Pixels, attention: Tensor) -> Pixels:
    """The square root of the attention as heat over the darkened grey image, cut at its strongest hundredth."""
    size = pixels.shape[:2]
    smooth = F.interpolate(attention[None, None].float().cpu(), size, mode="bilinear", align_corners=False)[0, 0]
    brightest = smooth.quantile(0.99).clamp(min=torch.finfo(torch.float32).tiny)
    heat = (smooth / brightest).clamp(0, 1).sqrt().numpy()
    grey = 0.45 * pixels.mean(axis=2, keepdims=True)
    colour = np.asarray(matplotlib.colormaps["inferno"](heat))[..., :3]
    weight = 0.85 * heat[..., None]
    blended: Pixels = ((1 - weight) * grey + weight * colour).astype(np.float32)
    return blended


def _share(attention: Tensor, labels: Tensor, point: Point, classes: Classes) -> str:
    """How much of the attention, and how much of the image, is of the query's class."""
    label = int(labels[point])
    same = F.adaptive_avg_pool2d((labels == label).float().cpu()[None], (attention.shape[0], attention.shape[1]))[0]
    share = float((attention.cpu() * same).sum() / attention.sum())
    known = 0 <= label < len(classes.names)
    name = classes.names[label] if known else f"label {label}"
    return f": {name}\n{share:.0%} of it on {name} ({float(same.mean()):.0%} of image)"


def _check(
    image: Tensor, maps: AttentionMaps, queries: Sequence[Point], labels: Tensor | None, prediction: Tensor | None
) -> None:
    if image.dim() != 3 or image.shape[0] != 3:
        raise ValueError(f"the image must be (3, H, W), got {tuple(image.shape)}")
    height, width = image.shape[1:]
    for name, given in (("labels", labels), ("prediction", prediction)):
        if given is not None and given.shape != (height, width):
            raise ValueError(f"{name} are {tuple(given.shape)} but the image is {height} x {width} pixels")
    if maps.pairwise is not None and maps.pairwise.shape[1] != len(queries):
        raise ValueError(f"{len(queries)} query points but pairwise maps of {maps.pairwise.shape[1]}")
    for y, x in queries:
        if not (0 <= y < height and 0 <= x < width):
            raise ValueError(f"query point {(y, x)} is outside the image of {height} x {width} pixels")
