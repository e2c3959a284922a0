"""Attention figures like the paper's: pairwise maps of marked queries, the unary map, and their sum."""

# H, W size of the image

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from dnlnet.lens.measure.ground_truth import boundary_map
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, Point, class_share, maps_by_term
from dnlnet.lens.show.panels import (
    SCALE,
    SIDE,
    QueryMark,
    blank,
    draw_heat,
    draw_legend,
    draw_panel,
    draw_scale,
    new_figure,
    panel_height,
)
from dnlnet.lens.show.strength import times_uniform
from dnlnet.names import in_figure

Panel = Callable[[Axes], None] | None  # draws itself on axes; None stays blank


def block_figure(image: AttendedImage, points: Sequence[Point], *, title: str | None = None) -> Figure:
    """Draw an image with its query points, its labels, and the attention maps of each view.

    Args:
        image: Image with one view per block, drawn one below the other. With labels, the title of each pairwise map
            gives its share on the query's class.
        points: Query points, (row, column) in pixels of the image.
        title: Title of the figure.

    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(30 * torch.randn(1, 8, 4, 6))
    >>> image = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("dnl", terms)])
    >>> figure = block_figure(image, [(8, 12)])
    >>> [axes.get_title() for axes in figure.subfigs[0].axes if axes.get_title()]
    ['sea and query points', 'unary: one map for all queries', 'pairwise of 1', 'pairwise + unary of 1']
    """
    image.require_inside(points)
    draw = _draw_single_view if image.labels is None and len(image.views) == 1 else _draw_views
    return draw(image, points, title)


def _draw_single_view(image: AttendedImage, points: Sequence[Point], title: str | None) -> Figure:
    """Draw the image and its maps in one row; prediction, legend and combined maps in a second, leaving no gap."""
    (view,) = image.views
    maps = _map_panels(image, view, points)
    first = [_image_panel(image, points), *maps["unary"], *maps["pairwise"]]
    predicted = view.prediction is not None and image.classes is not None
    second = [_prediction_panel(image, view), _legend_panel(image)] if predicted else []
    rows = [[*first, *second]]
    if maps["combined"]:
        rows = [first, [*(second or [None, None]), *maps["combined"]]]
    columns = max(map(len, rows))
    height = len(rows) * (panel_height(image.size) + 0.3) + 0.35
    figure = new_figure(columns * (SIDE + 0.12) + SCALE, height, title)
    _draw_view(figure.subfigures(1, 1, squeeze=False)[0, 0], view, rows, columns)
    return figure


def _draw_views(image: AttendedImage, points: Sequence[Point], title: str | None) -> Figure:
    """Draw the image with its labels in the first row; below it, each view with one or two rows of maps."""
    views = [_view_rows(image, view, points) for view in image.views]
    row = panel_height(image.size) + 0.45
    heights = [row, *(len(rows) * row + 0.35 for rows in views)]
    columns = max(1 + len(points), 2 + 2 * (image.labels is not None))
    figure = new_figure(columns * (SIDE + 0.12) + SCALE, sum(heights), title)
    top, *parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    # The last column is as wide as the colour bars below; without it, titles would overlap the panels.
    _draw_rows(top, [_truth_panels(image, points)], columns + 1, [SIDE] * columns + [SCALE])
    for part, view, rows in zip(parts, image.views, views, strict=True):
        _draw_view(part, view, rows, columns)
    return figure


def _view_rows(image: AttendedImage, view: AttentionView, points: Sequence[Point]) -> list[list[Panel]]:
    """Return the rows of panels of a view; the combined maps have a row only if there are two terms."""
    maps = _map_panels(image, view, points)
    prediction = _prediction_panel(image, view)
    if maps["combined"]:
        return [[*maps["unary"], *maps["pairwise"]], [prediction, *maps["combined"]]]
    return [[prediction, *maps["pairwise"]]] if maps["pairwise"] else [maps["unary"]]


def _draw_view(part: SubFigure, view: AttentionView, rows: Sequence[Sequence[Panel]], columns: int) -> None:
    part.suptitle(in_figure(view.title), fontsize=10, fontweight="bold")
    draw_scale(part, _draw_rows(part, rows, columns))


def _draw_rows(
    part: SubFigure, rows: Sequence[Sequence[Panel]], columns: int, widths: Sequence[float] | None = None
) -> list[Axes]:
    """Draw rows of panels from the left. The other cells stay blank."""
    grid = part.subplots(len(rows), columns, squeeze=False, width_ratios=widths)
    for places, panels in zip(grid, rows, strict=True):
        for axes, draw in zip_longest(places, panels):
            blank(axes)
            if draw is not None:
                draw(axes)
    return list(grid.flat)


def _map_panels(image: AttendedImage, view: AttentionView, points: Sequence[Point]) -> dict[str, list[Panel]]:
    """Return a panel per map: by term, in the order of the points."""
    positions = [view.position(point, image) for point in points]
    maps = maps_by_term(view.terms.maps(positions))

    def panel(attention: Tensor, title: str, query: int | None = None) -> Panel:
        marks = [] if query is None else [QueryMark.of_cell(query, positions[query], view.cell_size(image))]
        strength = view.over_image(times_uniform(attention), image)
        return lambda axes: draw_heat(axes, image.pixels, strength, title, marks)

    panels: dict[str, list[Panel]] = {"unary": [], "pairwise": [], "combined": []}
    if "unary" in maps:
        panels["unary"] = [panel(maps["unary"][0], "unary: one map for all queries")]
    if "pairwise" in maps:
        panels["pairwise"] = [
            panel(attention, f"pairwise of {n + 1}{_class_note(image, view, attention, points[n])}", n)
            for n, attention in enumerate(maps["pairwise"][0])
        ]
    if "pairwise" in maps and "unary" in maps:
        both = "pairwise + unary" if view.terms.coupled is None else "attention"
        panels["combined"] = [panel(each, f"{both} of {n + 1}", n) for n, each in enumerate(maps["combined"][0])]
    return panels


def _truth_panels(image: AttendedImage, points: Sequence[Point]) -> list[Panel]:
    """Return the image with its points; the labels and their boundaries, if known; and the legend."""
    panels = [_image_panel(image, points)]
    if image.labels is not None and image.classes is not None:
        edges = boundary_map(torch.from_numpy(image.labels), width=max(1, round(min(image.size) / 200)))
        white = np.repeat(255 * edges.numpy()[..., None].astype(np.uint8), 3, axis=2)
        panels.append(partial(draw_panel, pixels=image.classes.paint(image.labels), title="ground truth"))
        panels.append(partial(draw_panel, pixels=white, title="class boundaries"))
    return [*panels, _legend_panel(image)]


def _image_panel(image: AttendedImage, points: Sequence[Point]) -> Panel:
    marks = [QueryMark(number, *point) for number, point in enumerate(points)]
    title = f"{in_figure(image.name, 28)} and query points"
    return partial(draw_panel, pixels=image.pixels, title=title, marks=marks)


def _prediction_panel(image: AttendedImage, view: AttentionView) -> Panel:
    """Return the predicted classes. None if there are none: a detector may find nothing."""
    if view.prediction is None or image.classes is None or not (view.prediction < len(image.classes)).any():
        return None
    return partial(draw_panel, pixels=image.classes.paint(view.prediction), title="prediction")


def _legend_panel(image: AttendedImage) -> Panel:
    """Return a legend of the classes in the labels and predictions. None if the image has no classes."""
    if image.classes is None:
        return None
    maps = [image.labels, *(view.prediction for view in image.views)]
    found = sorted({int(k) for labels in maps if labels is not None for k in np.unique(labels)})
    return partial(draw_legend, classes=image.classes, shown=[k for k in found if k < len(image.classes)])


def _class_note(image: AttendedImage, view: AttentionView, attention: Tensor, point: Point) -> str:
    """Return the share of the attention, and of the image, on the query's true class, in words."""
    if image.labels is None or view.covered != (1, 1):
        return ""
    label = int(image.labels[point])
    name = image.class_name(label)
    if name is None:
        return ""
    same = class_share(image.labels, label, attention.shape)
    share = float((attention.cpu() * same).sum() / attention.sum())
    name = in_figure(name, 24)
    return f": {name}\n{share:.0%} of it on {name} ({float(same.mean()):.0%} of image)"
