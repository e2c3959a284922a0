"""Attention figures like the paper's: pairwise maps of marked queries, the unary map, and both combined."""

# H, W size of the picture

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.lens.measure.ground_truth import boundary_map
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView
from dnlnet.lens.show.panels import (
    SCALE,
    SIDE,
    Mark,
    draw_legend,
    draw_panel,
    draw_scale,
    noted,
    overlay_heat,
    panel_height,
)
from dnlnet.lens.show.query_points import Point
from dnlnet.names import in_figure


def attention_figure(picture: AttendedImage, points: Sequence[Point], *, title: str | None = None) -> Figure:
    """The picture with its query points, its labels, and the attention of each term of each view.

    Args:
        picture: with one view per block, shown one below the other. With labels, the title of each pairwise map says
            how much of it lies on the query's class.
        points: the queries, (row, column) in pixels of the picture.
        title: of the figure.

    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(30 * torch.randn(1, 8, 4, 6))
    >>> image = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("dnl", terms)])
    >>> figure = attention_figure(image, [(8, 12)])
    >>> [axes.get_title() for axes in figure.subfigs[0].axes if axes.get_title()]
    ['sea and query points', 'unary: one map for all queries', 'pairwise of 1', 'pairwise + unary of 1']
    """
    if not points:
        raise ValueError("no query points; pass at least one (row, column)")
    for point in points:
        picture.require_inside(point)
    if picture.labels is None and len(picture.views) == 1:
        return _figure_of_one_view(picture, points, title)
    row = panel_height(picture.size) + 0.45
    rows = [len(_rows_of(view)) for view in picture.views]
    columns = max(1 + len(points), 2 + 2 * (picture.labels is not None))
    heights = [row, *(count * row + 0.35 for count in rows)]
    size = columns * (SIDE + 0.12) + SCALE, sum(heights) + (0.4 if title else 0)
    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(in_figure(title, 100), fontsize=12, fontweight="bold")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_truth(parts[0], picture, points, columns)
    for part, view in zip(parts[1:], picture.views, strict=True):
        _draw_view(part, picture, view, points, columns)
    return figure


def _figure_of_one_view(picture: AttendedImage, points: Sequence[Point], title: str | None) -> Figure:
    """The picture and its maps in a row; below, prediction, legend and combined maps: no place is left empty."""
    (view,) = picture.views
    positions = [view.position(point, picture) for point in points]
    maps = view.terms.maps(positions)
    marks = [Mark(number, *point) for number, point in enumerate(points)]
    name = f"{in_figure(picture.name, 28)} and query points"
    first: list[Callable[[Axes], None]] = [lambda axes: draw_panel(axes, picture.pixels, name, marks)]
    if maps.unary is not None:
        unary = maps.unary[0]
        first.append(lambda axes: _draw_heat(axes, picture, view, unary, "unary: one map for all queries"))
    second: list[Callable[[Axes], None]] = []
    if view.prediction is not None and picture.classes is not None:
        second = [
            lambda axes: _draw_prediction(axes, picture, view),
            lambda axes: _draw_classes(axes, picture),
        ]
    both = maps.pairwise is not None and maps.unary is not None
    second = second or ([_draw_nothing] * 2 if both else [])
    together = "attention" if view.terms.coupled is not None else "pairwise + unary"
    for number, position in enumerate(positions):
        mark = position_mark(number, position, view, picture)
        for panels, attention, kind in (
            (first, maps.pairwise, "pairwise"),
            (second, maps.combined if both else None, together),
        ):
            if attention is not None:
                panels.append(
                    partial(
                        _draw_heat,
                        picture=picture,
                        view=view,
                        attention=attention[0, number],
                        title=f"{kind} of {number + 1}",
                        marks=[mark],
                    )
                )
    rows = [first, second] if both else [[*first, *second]]
    columns = max(map(len, rows))
    height = len(rows) * (panel_height(picture.size) + 0.3) + 0.35 + (0.4 if title else 0)
    figure = Figure(figsize=(columns * (SIDE + 0.12) + SCALE, height), layout="constrained")
    if title:
        figure.suptitle(in_figure(title, 100), fontsize=12, fontweight="bold")
    (part,) = figure.subfigures(1, 1, squeeze=False)[0]
    part.suptitle(in_figure(view.title), fontsize=10, fontweight="bold")
    axes = list(_places(part, len(rows), columns))
    for row, panels in enumerate(rows):
        for column, draw in enumerate(panels):
            draw(axes[row * columns + column])
    draw_scale(part, axes)
    return figure


def _draw_nothing(axes: Axes) -> None:
    axes.set_axis_off()


def _draw_heat(
    axes: Axes, picture: AttendedImage, view: AttentionView, attention: Tensor, title: str, marks: Sequence[Mark] = ()
) -> None:
    over = view.over_picture(attention, picture)
    draw_panel(axes, overlay_heat(picture.pixels, over), noted(title, over), marks)


def _draw_classes(axes: Axes, picture: AttendedImage) -> None:
    """A legend of the classes that the picture or a prediction has."""
    assert picture.classes is not None
    seen = [picture.labels, *(view.prediction for view in picture.views)]
    shown = sorted({int(k) for labels in seen if labels is not None for k in np.unique(labels)})
    draw_legend(axes, picture.classes, [k for k in shown if k < len(picture.classes)])


def _draw_truth(part: SubFigure, picture: AttendedImage, points: Sequence[Point], columns: int) -> None:
    """Draw the picture with its points, the labels and their edges if known, and the legend."""
    # A last column as wide as the colour bars below: panels that took its place would be too high for their titles.
    axes = _places(part, 1, columns + 1, [SIDE] * columns + [SCALE])
    marks = [Mark(number, *point) for number, point in enumerate(points)]
    draw_panel(next(axes), picture.pixels, f"{in_figure(picture.name, 28)} and query points", marks)
    if picture.labels is not None and picture.classes is not None:
        draw_panel(next(axes), picture.classes.paint(picture.labels), "ground truth")
        edges = boundary_map(torch.from_numpy(picture.labels), width=max(1, round(min(picture.size) / 200)))
        draw_panel(next(axes), np.repeat(255 * edges.numpy()[..., None].astype(np.uint8), 3, axis=2), "its edges")
    if picture.classes is not None:
        _draw_classes(next(axes), picture)


def _draw_view(
    part: SubFigure, picture: AttendedImage, view: AttentionView, points: Sequence[Point], columns: int
) -> None:
    """Draw the unary and pairwise maps, and below them the prediction and the combined maps."""
    part.suptitle(in_figure(view.title), fontsize=10, fontweight="bold")
    positions = [view.position(point, picture) for point in points]
    maps = view.terms.maps(positions)
    rows = _rows_of(view)
    axes = _places(part, len(rows), columns)
    drawn: list[Axes] = []
    for kind in rows:
        places = [next(axes) for _ in range(columns)]
        drawn += places
        attention = {"pairwise": maps.pairwise, "combined": maps.combined}.get(kind)
        if kind == "combined" or maps.unary is None:
            _draw_prediction(places[0], picture, view)
        else:
            _draw_heat(places[0], picture, view, maps.unary[0], "unary: one map for all queries")
        if attention is None:
            continue
        together = "attention" if view.terms.coupled is not None else "pairwise + unary"
        for number, (place, point, position) in enumerate(zip(places[1:], points, positions, strict=False)):
            name = f"{'pairwise' if kind == 'pairwise' else together} of {number + 1}"
            if kind == "pairwise" and picture.labels is not None and picture.classes is not None:
                name += _share(attention[0, number], picture.labels, point, picture.classes, view)
            mark = position_mark(number, position, view, picture)
            _draw_heat(place, picture, view, attention[0, number], name, [mark])
    draw_scale(part, drawn)


def _rows_of(view: AttentionView) -> list[str]:
    """Which maps to show; the combined ones only if there are two terms."""
    has_both = view.terms.pairwise is not None and view.terms.unary is not None
    if has_both:
        return ["pairwise", "combined"]
    if view.terms.pairwise is not None:
        return ["pairwise"]
    return ["unary"]


def _draw_prediction(axes: Axes, picture: AttendedImage, view: AttentionView) -> None:
    if view.prediction is None or picture.classes is None:
        return
    if (view.prediction < len(picture.classes)).any():  # a detector may have found nothing
        draw_panel(axes, picture.classes.paint(view.prediction), "prediction")


def position_mark(number: int, position: Point, view: AttentionView, picture: AttendedImage) -> Mark:
    """A mark on the position's cell, in pixels of the picture."""
    height, width = (
        length / share / count
        for length, share, count in zip(picture.size, view.covered, view.terms.size, strict=True)
    )
    return Mark.of_cell(number, position, (height, width))


def _places(part: SubFigure, rows: int, columns: int, widths: Sequence[float] | None = None) -> Iterator[Axes]:
    """The axes of a part, row by row; unused ones stay blank."""
    places = list(part.subplots(rows, columns, squeeze=False, width_ratios=widths).flatten())
    for axes in places:
        axes.set_frame_on(False)
        axes.set_xticks([])
        axes.set_yticks([])
    return iter(places)


def _share(attention: Tensor, labels: NDArray[np.uint8], point: Point, classes: Classes, view: AttentionView) -> str:
    """The share of the attention, and of the picture, on the query's class, in words."""
    label = int(labels[point])
    if label >= len(classes) or view.covered != (1, 1):
        return ""
    height, width = attention.shape
    same = F.adaptive_avg_pool2d(torch.from_numpy(labels == label).float()[None], (height, width))[0]
    share = float((attention.cpu() * same).sum() / attention.sum())
    name = in_figure(classes.names[label], 24)
    return f": {name}\n{share:.0%} of it on {name} ({float(same.mean()):.0%} of picture)"
