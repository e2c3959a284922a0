"""Figure of a transformer's attention: one row per layer or head, with its attention and both terms."""

from collections.abc import Sequence
from math import ceil
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, Point, maps_by_term
from dnlnet.lens.show.panels import (
    SCALE,
    SIDE,
    Pixels,
    QueryMark,
    blank,
    column_groups,
    draw_heat,
    draw_panel,
    draw_scale,
    new_figure,
    panel_height,
)
from dnlnet.lens.show.strength import times_uniform
from dnlnet.names import in_figure

_LABEL = 0.45  # inches for the name of a row
_LABEL_LETTERS = 17  # per inch
_KEY = (
    "attention: where the marked query looks, as the layer computes it",
    "unary: where every query looks, from the mean of all queries alone",
    "pairwise: where this query looks and others do not",
)
_KEY_LETTERS = 16  # per inch
_KEY_HEIGHT = 1.3  # inches in one column


def layer_figure(image: AttendedImage, points: Sequence[Point], *, title: str | None = None) -> Figure:
    """Draw an image with its query points; for each view, the attention, the unary and the pairwise maps.

    Many views are drawn in several groups side by side.

    Args:
        image: Image with one view per row.
        points: Query points, (row, column) in pixels of the image. Each has one column of attention and one of the
            pairwise term.
        title: Title of the figure.

    >>> import numpy as np, torch
    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "nl").terms(100 * torch.randn(1, 8, 4, 6))
    >>> image = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("nl", terms)])
    >>> figure = layer_figure(image, [(8, 12)])
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['sea', 'attention of 1', 'unary, for all queries', 'pairwise of 1']
    """
    image.require_inside(points)
    shown: list[tuple[Pixels, str, list[QueryMark]]] = [
        (image.pixels, in_figure(image.name, 28), [QueryMark(number, *at) for number, at in enumerate(points)])
    ]
    if image.labels is not None and image.classes is not None:
        shown.append((image.classes.paint(image.labels), "ground truth", []))
    views, maps = len(image.views), 1 + 2 * len(points)
    above = views >= maps  # the image is above many rows, or beside few
    row, column = panel_height(image.size) + 0.1, SIDE + 0.08
    groups = column_groups(views, row, maps * column + _LABEL) if above else 1
    rows = ceil(views / groups)
    columns = groups * maps + (not above)
    figure = new_figure(
        columns * column + groups * _LABEL + SCALE, (rows + above) * row + 0.3 * (1 + above), title, tight=True
    )
    cells = figure.add_gridspec(rows + above, columns)
    for place, panel in enumerate(shown[:views]):
        draw_panel(figure.add_subplot(cells[(0, place) if above else (place, 0)]), *panel)
    if above:
        _draw_key(figure.add_subplot(cells[0, len(shown) : maps]), maps - len(shown))
    elif views > len(shown) and panel_height(image.size) >= _KEY_HEIGHT:
        _draw_key(figure.add_subplot(cells[len(shown), 0]), 1)
    drawn: list[Axes] = []
    for number, view in enumerate(image.views):
        group, place = divmod(number, rows)
        first = group * maps + (not above)
        places = [figure.add_subplot(cells[place + above, first + at]) for at in range(maps)]
        _draw_row(places, image, view, points, titled=place == 0)
        places[0].set_ylabel(_row_name(view, image), fontsize=7)
        drawn += places
    draw_scale(figure, drawn)
    return figure


def _draw_key(axes: Axes, columns: int) -> None:
    """Explain the maps beside the image."""
    blank(axes)
    lines = (line for sentence in _KEY for line in wrap(sentence, int(columns * SIDE * _KEY_LETTERS)))
    axes.text(0.03, 0.5, "\n".join(lines), fontsize=8, va="center", linespacing=1.4, transform=axes.transAxes)


def _draw_row(
    places: Sequence[Axes], image: AttendedImage, view: AttentionView, points: Sequence[Point], titled: bool
) -> None:
    """Draw the maps of a view: attention of each query, unary, pairwise of each query."""
    positions = [view.position(point, image) for point in points]
    maps = maps_by_term(view.terms.maps(positions))
    queries = range(len(points))
    columns = [
        *((f"attention of {n + 1}", "combined", n) for n in queries),
        ("unary, for all queries", "unary", None),
        *((f"pairwise of {n + 1}", "pairwise", n) for n in queries),
    ]
    for axes, (name, term, query) in zip(places, columns, strict=True):
        if term not in maps:
            blank(axes)
            continue
        attention = maps[term][0] if query is None else maps[term][0, query]
        marks = [] if query is None else [QueryMark.of_cell(query, positions[query], view.cell_size(image))]
        strength = view.over_image(times_uniform(attention), image)
        draw_heat(axes, image.pixels, strength, name if titled else "", marks)


def _row_name(view: AttentionView, image: AttendedImage) -> str:
    """Return layer and head, and the model if there are several, in lines that fit the height of the row."""
    lines = [view.title]
    if view.place is not None:
        models = {each.place.model for each in image.views if each.place is not None}
        number, _, name = view.place.layer.partition(" ")
        lines = [*([view.place.model] if len(models) > 1 else []), f"layer {number}", name, view.place.head]
    room = int(panel_height(image.size) * _LABEL_LETTERS)
    return "\n".join(in_figure(line if len(line) <= room else f"…{line[1 - room :]}") for line in lines)
