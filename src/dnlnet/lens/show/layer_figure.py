"""A figure of a transformer's attention: one row for each layer or head, with its attention and both of its terms."""

from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dnlnet.lens.show.attended_image import AttendedImage, AttentionView
from dnlnet.lens.show.attention_figure import position_mark
from dnlnet.lens.show.panels import (
    SCALE,
    SIDE,
    Mark,
    Pixels,
    draw_panel,
    draw_scale,
    noted,
    overlay_heat,
    panel_height,
)
from dnlnet.lens.show.query_points import Point
from dnlnet.names import in_figure

_LABEL = 0.45  # inches for the name of a row
_LETTERS = 17  # of it in an inch
_WORDS = (
    "attention: where the marked query looks, as the layer computes it",
    "unary: where every query looks, by the mean of all queries alone",
    "pairwise: where this query looks and the others do not",
)
_WORD_LETTERS = 16  # of them in an inch
_WORDS_HIGH = 1.3  # inches of them in one column


def layer_figure(picture: AttendedImage, points: Sequence[Point], *, title: str | None = None) -> Figure:
    """The picture with its query points, and for each view the attention, the unary and the pairwise maps.
    Args:
        picture: with one view for each row.
        points: the queries, (row, column) in pixels of the picture; each has a column of attention, and one of the
            pairwise term.
        title: of the figure.

    >>> import numpy as np, torch
    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "nl").terms(100 * torch.randn(1, 8, 4, 6))
    >>> image = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("nl", terms)])
    >>> figure = layer_figure(image, [(8, 12)])
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['sea', 'attention of 1', 'unary, for all queries', 'pairwise of 1']
    """
    if not points:
        raise ValueError("no query points; pass at least one (row, column)")
    for point in points:
        picture.require_inside(point)
    shown: list[tuple[Pixels, str, list[Mark]]] = [
        (picture.pixels, in_figure(picture.name, 28), [Mark(number, *at) for number, at in enumerate(points)])
    ]
    if picture.labels is not None and picture.classes is not None:
        shown.append((picture.classes.paint(picture.labels), "ground truth", []))
    views, maps = len(picture.views), 1 + 2 * len(points)
    above = views >= maps  # the picture, and what belongs to it, in a row above many rows, or in a column beside few
    rows, columns = (views + 1, maps) if above else (views, maps + 1)
    figure = Figure(
        figsize=(
            columns * (SIDE + 0.08) + _LABEL + SCALE,
            rows * (panel_height(picture.size) + 0.1) + 0.3 * (1 + above) + (0.4 if title else 0),
        ),
        layout="constrained",
    )
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.01, hspace=0.01)  # type: ignore[union-attr,call-arg]
    if title:
        figure.suptitle(in_figure(title, 100), fontsize=12, fontweight="bold")
    cells = figure.add_gridspec(rows, columns)
    for place, panel in enumerate(shown[:views]):
        draw_panel(figure.add_subplot(cells[(0, place) if above else (place, 0)]), *panel)
    if above:
        _draw_words(figure.add_subplot(cells[0, len(shown) :]), columns - len(shown))
    elif views > len(shown) and panel_height(picture.size) >= _WORDS_HIGH:
        _draw_words(figure.add_subplot(cells[len(shown), 0]), 1)
    drawn: list[Axes] = []
    for number, view in enumerate(picture.views):
        places = [figure.add_subplot(cells[number + above, column - maps]) for column in range(maps)]
        _draw_row(places, picture, view, points, titled=number == 0)
        places[0].set_ylabel(_row_name(view, picture), fontsize=7)
        drawn += places
    draw_scale(figure, drawn)
    return figure


def _draw_words(axes: Axes, columns: int) -> None:
    """What the maps are, beside the picture."""
    _blank(axes)
    lines = (line for sentence in _WORDS for line in wrap(sentence, int(columns * SIDE * _WORD_LETTERS)))
    axes.text(0.03, 0.5, "\n".join(lines), fontsize=8, va="center", linespacing=1.4, transform=axes.transAxes)


def _draw_row(
    places: Sequence[Axes], picture: AttendedImage, view: AttentionView, points: Sequence[Point], titled: bool
) -> None:
    positions = [view.position(point, picture) for point in points]
    maps = view.terms.maps(positions)
    count = len(points)
    marks = [position_mark(number, position, view, picture) for number, position in enumerate(positions)]
    panels: list[tuple[str, Tensor | None, list[Mark]]] = [
        *((f"attention of {n + 1}", maps.combined[0, n], [marks[n]]) for n in range(count)),
        ("unary, for all queries", None if maps.unary is None else maps.unary[0], []),
        *(
            (f"pairwise of {n + 1}", None if maps.pairwise is None else maps.pairwise[0, n], [marks[n]])
            for n in range(count)
        ),
    ]
    for place, (name, attention, marked) in zip(places, panels, strict=True):
        if attention is None:
            _blank(place)
            continue
        over = view.over_picture(attention, picture)
        title = noted(name, over) if titled else noted("", over).strip()
        draw_panel(place, overlay_heat(picture.pixels, over), title, marked)


def _row_name(view: AttentionView, picture: AttendedImage) -> str:
    """Layer and head, and the model where there are several, in lines as long as the row is high."""
    lines = [view.title]
    if view.place is not None:
        models = {each.place.model for each in picture.views if each.place is not None}
        number, _, name = view.place.layer.partition(" ")
        lines = [*([view.place.model] if len(models) > 1 else []), f"layer {number}", name, view.place.head]
    room = int(panel_height(picture.size) * _LETTERS)
    return "\n".join(in_figure(line if len(line) <= room else f"…{line[1 - room :]}") for line in lines)


def _blank(axes: Axes) -> None:
    axes.set_frame_on(False)
    axes.set_xticks([])
    axes.set_yticks([])
