"""Figure of attention maps: one row per query, with its pairwise, unary and combined map."""

# B images or heads, Q queries, S lengths of the key map

from dataclasses import dataclass
from math import ceil, prod

import numpy as np
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import AttentionMaps
from dnlnet.data.images import ImageLike, read_pixels
from dnlnet.lens.show.drawable import Drawable
from dnlnet.lens.show.panels import (
    SIDE,
    QueryMark,
    blank,
    column_groups,
    draw_panel,
    draw_scale,
    new_figure,
    overlay_heat,
    panel_height,
)
from dnlnet.lens.show.strength import brightness, times_uniform

_MAX_ROWS = 12


@dataclass(frozen=True, repr=False)
class DrawableMaps(Drawable):
    """Attention maps, and the image that they are drawn over."""

    maps: AttentionMaps
    over: ImageLike | None = None

    def plot(self) -> Figure:
        """Return a figure of the maps."""
        return maps_figure(self.maps, self.over)

    def __repr__(self) -> str:
        return repr(self.maps)


def maps_figure(maps: AttentionMaps, over: ImageLike | None = None) -> Figure:
    """Draw the maps of up to twelve queries, one below the other, or in groups side by side if there are many.

    A 1d map is a curve. The time steps of a 3d map are drawn side by side.

    Args:
        maps: Maps of queries, of one or several images or heads.
        over: Image to draw 2d maps over.

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> maps = NonLocalBlock(8, "dnl").attention_maps(torch.rand(1, 8, 4, 6), [(1, 2), (3, 0)])
    >>> [axes.get_title() for axes in maps_figure(maps).axes if axes.get_title()]
    ['pairwise', 'unary', 'pairwise + unary']
    """
    batch, count, *size = maps.combined.shape
    pixels = None if over is None else read_pixels(over)
    if pixels is not None and len(size) != 2:
        raise ValueError(f"only 2d maps can be drawn over an image; these have {len(size)} dimensions")
    queries = [(image, query) for image in range(batch) for query in range(count)][:_MAX_ROWS]
    columns = _columns(maps)
    width, height = SIDE * 1.5, 1.4
    if len(size) > 1:
        width = SIDE if len(size) == 2 else width
        steps_side_by_side = size[-2], prod(size) // size[-2]
        height = panel_height(steps_side_by_side if pixels is None else pixels.shape[:2]) * width / SIDE
    below, beside = height + 0.12, len(columns) * (width + 0.1) + 0.3
    groups = column_groups(len(queries), below, beside)
    rows = ceil(len(queries) / groups)
    figure = new_figure(groups * beside + 0.6, rows * below + 0.35)
    grid = figure.subplots(rows, groups * len(columns), squeeze=False)
    for number, (image, query) in enumerate(queries):
        group, place = divmod(number, rows)
        panels = grid[place, group * len(columns) : (group + 1) * len(columns)]
        at = None if maps.queries is None else maps.queries[query]
        for axes, (name, attention) in zip(panels, columns.items(), strict=True):
            one = attention[image, query] if attention.shape[1] == count else attention[image, 0]
            _draw_map(axes, one.detach().cpu().float(), pixels, at, query)
            if place == 0:
                axes.set_title(name, fontsize=9)
        panels[0].set_ylabel(_row_name(image, query, maps), fontsize=8)
    for axes in grid.flat:
        if not axes.has_data():  # the last group may have fewer rows
            blank(axes)
    if len(size) > 1:
        draw_scale(figure, list(grid.flat))
    return figure


def _columns(maps: AttentionMaps) -> dict[str, Tensor]:
    """Return the maps (B, Q or 1, *S) that exist, by title."""
    columns = {}
    if maps.pairwise is not None:
        columns["pairwise"] = maps.pairwise
    if maps.unary is not None:
        columns["unary"] = maps.unary[:, None]
    if len(columns) == 2:
        is_sum = float(maps.combined[0, 0].sum()) > 1.5
        columns["pairwise + unary" if is_sum else "attention"] = maps.combined
    return columns


def _row_name(image: int, query: int, maps: AttentionMaps) -> str:
    batch, _, *size = maps.combined.shape
    of = f"\nof image or head {image}" if batch > 1 else ""
    if maps.queries is None:
        return f"query {query + 1}{of}"
    place = ", ".join(str(int(share * length)) for share, length in zip(maps.queries[query], size, strict=True))
    return f"query {query + 1} at ({place}){of}"


def _draw_map(
    axes: Axes, attention: Tensor, pixels: NDArray[np.uint8] | None, query: tuple[float, ...] | None, number: int
) -> None:
    """Draw one map; the query is given in shares of the map's size."""
    if attention.ndim == 1:
        axes.fill_between(range(len(attention)), attention.numpy(), color="#e8871e")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
        if query is not None:
            axes.axvline(query[0] * len(attention) - 0.5, color="0.3", linestyle="--", linewidth=1)
        return
    if attention.ndim == 3:
        steps, height, width = attention.shape
        attention = attention.permute(1, 0, 2).reshape(height, steps * width)
        if query is not None:
            time, row, column = query
            query = row, (int(time * steps) + column) / steps
    strength = times_uniform(attention)
    if pixels is None:
        draw_panel(axes, brightness(strength).numpy(), "")
        height, width = attention.shape
    else:
        height, width = pixels.shape[:2]
        smooth = F.interpolate(strength[None, None], (height, width), mode="bilinear", align_corners=False)
        draw_panel(axes, overlay_heat(pixels, smooth[0, 0]), "")
    if query is not None:
        QueryMark(number, query[0] * height - 0.5, query[1] * width - 0.5).draw(axes)
