"""Attention figures like the paper's: pairwise maps of marked queries, the unary map, and their sum."""

# H, W size of the image

from collections.abc import Callable, Sequence
from functools import partial

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
    blank_axes,
    draw_legend,
    draw_panel,
    draw_scale,
    map_title,
    new_figure,
    overlay_heat,
    panel_height,
)
from dnlnet.names import in_figure

Panel = Callable[[Axes], None]  # draws itself on axes


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
    second: list[Panel] = []
    if view.prediction is not None and image.classes is not None:
        second = [partial(_draw_prediction, image=image, view=view), partial(_draw_classes, image=image)]
    rows = [[*first, *second]]
    if maps["combined"]:
        rows = [first, [*(second or [_draw_nothing] * 2), *maps["combined"]]]
    columns = max(map(len, rows))
    height = len(rows) * (panel_height(image.size) + 0.3) + 0.35
    figure = new_figure(columns * (SIDE + 0.12) + SCALE, height, title)
    (part,) = figure.subfigures(1, 1, squeeze=False)[0]
    _draw_rows(part, view, rows, columns)
    return figure


def _draw_views(image: AttendedImage, points: Sequence[Point], title: str | None) -> Figure:
    """Draw the image with its labels in the first row; below it, each view with one or two rows of maps."""
    views = [_view_rows(image, view, points) for view in image.views]
    row = panel_height(image.size) + 0.45
    heights = [row, *(len(rows) * row + 0.35 for rows in views)]
    columns = max(1 + len(points), 2 + 2 * (image.labels is not None))
    figure = new_figure(columns * (SIDE + 0.12) + SCALE, sum(heights), title)
    top, *parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_truth(top, image, points, columns)
    for part, view, rows in zip(parts, image.views, views, strict=True):
        _draw_rows(part, view, rows, columns)
    return figure


def _view_rows(image: AttendedImage, view: AttentionView, points: Sequence[Point]) -> list[list[Panel]]:
    """Return the rows of panels of a view; the combined maps have a row only if there are two terms."""
    maps = _map_panels(image, view, points)
    prediction = partial(_draw_prediction, image=image, view=view)
    if maps["combined"]:
        return [[*maps["unary"], *maps["pairwise"]], [prediction, *maps["combined"]]]
    return [[prediction, *maps["pairwise"]]] if maps["pairwise"] else [maps["unary"]]


def _map_panels(image: AttendedImage, view: AttentionView, points: Sequence[Point]) -> dict[str, list[Panel]]:
    """Return a panel per map: by term, in the order of the points."""
    positions = [view.position(point, image) for point in points]
    maps = maps_by_term(view.terms.maps(positions))
    panels: dict[str, list[Panel]] = {"unary": [], "pairwise": [], "combined": []}

    def add(term: str, attention: Tensor, title: str, marks: Sequence[QueryMark] = ()) -> None:
        panels[term].append(
            partial(_draw_heat, image=image, view=view, attention=attention, title=title, marks=marks)
        )

    if "unary" in maps:
        add("unary", maps["unary"][0], "unary: one map for all queries")
    for number, (point, position) in enumerate(zip(points, positions, strict=True)):
        marks = [cell_mark(number, position, view, image)]
        if "pairwise" in maps:
            attention = maps["pairwise"][0, number]
            note = _class_note(image, view, attention, point)
            add("pairwise", attention, f"pairwise of {number + 1}{note}", marks)
        if "pairwise" in maps and "unary" in maps:
            together = "attention" if view.terms.coupled is not None else "pairwise + unary"
            add("combined", maps["combined"][0, number], f"{together} of {number + 1}", marks)
    return panels


def _draw_rows(part: SubFigure, view: AttentionView, rows: Sequence[Sequence[Panel]], columns: int) -> None:
    part.suptitle(in_figure(view.title), fontsize=10, fontweight="bold")
    axes = blank_axes(part, len(rows), columns)
    for number, panels in enumerate(rows):
        for place, draw in zip(axes[number * columns :], panels, strict=False):
            draw(place)
    draw_scale(part, axes)


def _draw_truth(part: SubFigure, image: AttendedImage, points: Sequence[Point], columns: int) -> None:
    """Draw the image with its points; the labels and their boundaries, if known; and the legend."""
    panels = [_image_panel(image, points)]
    if image.labels is not None and image.classes is not None:
        edges = boundary_map(torch.from_numpy(image.labels), width=max(1, round(min(image.size) / 200)))
        white = np.repeat(255 * edges.numpy()[..., None].astype(np.uint8), 3, axis=2)
        panels.append(partial(draw_panel, pixels=image.classes.paint(image.labels), title="ground truth"))
        panels.append(partial(draw_panel, pixels=white, title="class boundaries"))
    if image.classes is not None:
        panels.append(partial(_draw_classes, image=image))
    # The last column is as wide as the colour bars below; without it, titles would overlap the panels.
    axes = blank_axes(part, 1, columns + 1, [SIDE] * columns + [SCALE])
    for place, draw in zip(axes, panels, strict=False):
        draw(place)


def _image_panel(image: AttendedImage, points: Sequence[Point]) -> Panel:
    marks = [QueryMark(number, *point) for number, point in enumerate(points)]
    return partial(
        draw_panel, pixels=image.pixels, title=f"{in_figure(image.name, 28)} and query points", marks=marks
    )


def _draw_heat(
    axes: Axes,
    image: AttendedImage,
    view: AttentionView,
    attention: Tensor,
    title: str,
    marks: Sequence[QueryMark] = (),
) -> None:
    over = view.over_image(attention, image)
    draw_panel(axes, overlay_heat(image.pixels, over), map_title(title, over), marks)


def _draw_prediction(axes: Axes, image: AttendedImage, view: AttentionView) -> None:
    if view.prediction is None or image.classes is None:
        return
    if (view.prediction < len(image.classes)).any():  # a detector may find nothing
        draw_panel(axes, image.classes.paint(view.prediction), "prediction")


def _draw_classes(axes: Axes, image: AttendedImage) -> None:
    """Draw a legend of the classes in the labels and predictions."""
    assert image.classes is not None
    maps = [image.labels, *(view.prediction for view in image.views)]
    found = sorted({int(k) for labels in maps if labels is not None for k in np.unique(labels)})
    draw_legend(axes, image.classes, [k for k in found if k < len(image.classes)])


def _draw_nothing(axes: Axes) -> None:
    pass


def cell_mark(number: int, position: Point, view: AttentionView, image: AttendedImage) -> QueryMark:
    """Return a mark on the cell of a position, in pixels of the image."""
    height, width = (
        length / share / count for length, share, count in zip(image.size, view.covered, view.terms.size, strict=True)
    )
    return QueryMark.of_cell(number, position, (height, width))


def _class_note(image: AttendedImage, view: AttentionView, attention: Tensor, point: Point) -> str:
    """Return the share of the attention, and of the image, on the query's true class, in words."""
    if image.labels is None or image.classes is None or view.covered != (1, 1):
        return ""
    label = int(image.labels[point])
    if label >= len(image.classes):
        return ""
    same = class_share(image.labels, label, attention.shape)
    share = float((attention.cpu() * same).sum() / attention.sum())
    name = in_figure(image.classes.names[label], 24)
    return f": {name}\n{share:.0%} of it on {name} ({float(same.mean()):.0%} of image)"
