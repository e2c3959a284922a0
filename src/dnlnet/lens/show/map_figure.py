"""Figures of attention maps as numbers: a row for each query, with the pairwise, unary and combined map in it."""

# B images or heads, Q queries, S lengths of the key map

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import AttentionMaps
from dnlnet.data.images import ImageLike, read_pixels
from dnlnet.lens.show.drawable import Drawable
from dnlnet.lens.show.panels import SIDE, Mark, draw_panel, draw_scale, overlay_heat, panel_height

_MOST_ROWS = 12


@dataclass(frozen=True, repr=False)
class DrawableMaps(Drawable):
    """Maps with the picture that they are drawn over."""

    maps: AttentionMaps
    over: ImageLike | None = None

    def plot(self) -> Figure:
        """A figure of them."""
        return maps_figure(self.maps, self.over)

    def __repr__(self) -> str:
        return repr(self.maps)


def maps_figure(maps: AttentionMaps, over: ImageLike | None = None) -> Figure:
    """Maps of up to twelve queries, one below the other, each with its own scale from 0 to its maximum.

    A 1-d map is a curve; the time steps of a 3-d map stand side by side.

    Args:
        maps: of queries of one or several images or heads.
        over: the picture of 2-d maps, to draw them over.

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> maps = NonLocalBlock(8, "dnl").attention_maps(torch.rand(1, 8, 4, 6), [(1, 2), (3, 0)])
    >>> [axes.get_title() for axes in maps_figure(maps).axes if axes.get_title()]
    ['pairwise', 'unary', 'pairwise + unary']
    """
    batch, count, *size = maps.combined.shape
    pixels = None if over is None else read_pixels(over)
    if pixels is not None and len(size) != 2:
        raise ValueError(f"only maps of a picture can be drawn over one; these have {len(size)} dimensions")
    queries = [(image, query) for image in range(batch) for query in range(count)][:_MOST_ROWS]
    columns = _columns(maps)
    shape = _shape(size) if pixels is None else pixels.shape[:2]
    wide = SIDE * (1.5 if len(size) != 2 else 1)
    high = panel_height(shape) * wide / SIDE if len(size) > 1 else 1.4
    figure = Figure(
        figsize=(len(columns) * (wide + 0.1) + 0.9, len(queries) * (high + 0.12) + 0.35), layout="constrained"
    )
    grid = figure.subplots(len(queries), len(columns), squeeze=False)
    for row, (image, query) in zip(grid, queries, strict=True):
        mark = None if maps.queries is None else maps.queries[query]
        for axes, name in zip(row, columns, strict=True):
            attention = columns[name]
            one = attention[image, query] if attention.shape[1] == count else attention[image, 0]
            _draw(axes, one.detach().cpu().float(), pixels, mark, query)
        row[0].set_ylabel(_row_name(image, query, batch, mark, maps), fontsize=8)
    for axes, name in zip(grid[0], columns, strict=True):
        axes.set_title(name, fontsize=9)
    if len(size) > 1:
        draw_scale(figure, list(grid.flat))
    return figure


def _columns(maps: AttentionMaps) -> dict[str, Tensor]:
    """The maps that there are, (B, Q or 1, *S), by what to call them."""
    unary = None if maps.unary is None else maps.unary[:, None]
    both = maps.pairwise is not None and unary is not None
    added = both and float(maps.combined[0, 0].sum()) > 1.5
    named = {"pairwise": maps.pairwise, "unary": unary}
    if both:
        named["pairwise + unary" if added else "attention"] = maps.combined
    return {name: part for name, part in named.items() if part is not None}


def _row_name(image: int, query: int, batch: int, mark: tuple[float, ...] | None, maps: AttentionMaps) -> str:
    of = f"\nof image or head {image + 1}" if batch > 1 else ""
    if mark is None:
        return f"query {query + 1}{of}"
    size = maps.combined.shape[2:]
    place = ", ".join(str(int(share * length)) for share, length in zip(mark, size, strict=True))
    return f"query {query + 1} at ({place}){of}"


def _shape(size: list[int]) -> tuple[int, int]:
    """Height and width of a map as it is drawn."""
    *before, width = size
    return (before[-1], width * before[0]) if len(size) == 3 else (before[0] if before else 1, width)


def _draw(
    axes: Axes, attention: Tensor, pixels: NDArray[np.uint8] | None, mark: tuple[float, ...] | None, number: int
) -> None:
    if attention.ndim == 1:
        axes.fill_between(range(len(attention)), attention.numpy(), color="#e8871e")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
        if mark is not None:
            axes.axvline(mark[0] * len(attention) - 0.5, color="0.3", linestyle="--", linewidth=1)
        return
    if attention.ndim == 3:
        steps, height, width = attention.shape
        attention = attention.permute(1, 0, 2).reshape(height, steps * width)
        if mark is not None:
            time, row, column = mark
            mark = row, (int(time * steps) + column) / steps
    if pixels is None:
        shown = (attention / attention.max().clamp(min=1e-30)).sqrt().numpy()
        draw_panel(axes, shown, "")
        height, width = attention.shape
    else:
        height, width = pixels.shape[:2]
        smooth = F.interpolate(attention[None, None], (height, width), mode="bilinear", align_corners=False)
        draw_panel(axes, overlay_heat(pixels, smooth[0, 0]), "")
    if mark is not None:
        Mark(number, mark[0] * height - 0.5, mark[1] * width - 0.5).draw(axes)
