"""Figure of a 3d block's attention over a clip: one row per map, one column per frame."""

# T frames, t time steps of the block's map, H, W size of a frame

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from dnlnet.attention import Terms
from dnlnet.lens.show.attended_image import cell_of
from dnlnet.lens.show.panels import (
    SCALE,
    SIDE,
    QueryMark,
    draw_panel,
    draw_scale,
    new_figure,
    overlay_heat,
    panel_height,
)
from dnlnet.lens.show.strength import is_nearly_uniform, times_uniform
from dnlnet.names import in_figure

_MAX_FRAMES = 8
_WIDTH, _HEIGHT, _MIN_SIDE = 10.0, 6.5, 0.5  # inches: of all panels, and of the side of one
_GAP = 0.08  # inches between two rows
_LABEL = 1.3  # inches for the names of the rows
_LABEL_LETTERS = 24  # per line
ClipPoint = tuple[int, int, int]  # (frame, row, column) in frames and pixels of the clip


def clip_figure(
    frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint], *, title: str | None = None
) -> Figure:
    """Draw the frames in a row; below, for each block, its unary map and the pairwise map of each point.

    A query lies in one frame and attends to all frames. If a block's map has fewer time steps than the clip has
    frames, each step is shown on its middle frame; at most eight steps are shown. A row's name gives the maximum of
    its map over all frames.

    Args:
        frames: (T, H, W, 3) in 0..255.
        blocks: Terms of 3d blocks on this clip, by title.
        points: Query points, (frame, row, column).
        title: Title of the figure.

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl", dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    >>> figure = clip_figure(np.zeros((8, 12, 20, 3), np.uint8), {"dnl": terms}, [(3, 6, 10)])
    >>> len(figure.axes)  # frames, unary and pairwise map at four time steps, and the colour bar
    13
    """
    _check(frames, blocks, points)
    times = min(max(terms.key_size[0] for terms in blocks.values()), _MAX_FRAMES)
    first = next(iter(blocks.values()))
    cell = frames.shape[1] / first.size[1], frames.shape[2] / first.size[2]
    marks = [QueryMark.of_cell(n, clip_position(at, frames, first)[1:], cell) for n, at in enumerate(points)]
    rows: list[tuple[str, Tensor | None, Sequence[int]]] = [("frames", None, range(len(points)))]
    for name, terms in blocks.items():
        maps = terms.maps([clip_position(point, frames, terms) for point in points])
        if maps.unary is not None:
            rows.append((_row_name(name, "unary", maps.unary[0]), maps.unary[0], []))
        if maps.pairwise is not None:
            rows += [
                (_row_name(name, f"pairwise of {n + 1}", attention), attention, [n])
                for n, attention in enumerate(maps.pairwise[0])
            ]
    # Panels as large as fit on a screen; letters have the same size in every figure.
    ratio = panel_height((frames.shape[1], frames.shape[2])) / SIDE
    side = max(_MIN_SIDE, min(0.75 * SIDE, _WIDTH / times, (_HEIGHT / len(rows) - _GAP) / ratio))
    width, height = times * (side + 0.05) + _LABEL + SCALE, len(rows) * (side * ratio + _GAP) + 0.3
    figure = new_figure(width, height, title, tight=True)
    grid = figure.subplots(len(rows), times, squeeze=False)
    for axes, (name, attention, queries) in zip(grid, rows, strict=True):
        in_frame = [(cell_of(points[query][0], len(frames), times), marks[query]) for query in queries]
        _draw_row(axes, frames, attention, in_frame)
        axes[0].set_ylabel(name, fontsize=7, rotation=0, ha="right", va="center", labelpad=6)
    for time, axes in enumerate(grid[0]):
        axes.set_title(f"frame {_middle_frame(time, times, len(frames)) + 1}", fontsize=9)
    draw_scale(figure, list(grid[1:].flat))
    return figure


def _draw_row(
    places: Sequence[Axes],
    frames: NDArray[np.uint8],
    attention: Tensor | None,
    marks: Sequence[tuple[int, QueryMark]],
) -> None:
    """Draw one map over the frames, or the frames alone, with marks at their time steps."""
    times = len(places)
    over = None
    if attention is not None:
        strength = times_uniform(attention.float().cpu())
        over = interpolate(strength[:, None], frames.shape[1:3], mode="bilinear", align_corners=False)[:, 0]
    for time, axes in enumerate(places):
        frame = frames[_middle_frame(time, times, len(frames))]
        heat = None if over is None else overlay_heat(frame, over[time * len(over) // times])
        draw_panel(axes, frame if heat is None else heat, "", [mark for when, mark in marks if when == time])


def _row_name(block: str, term: str, attention: Tensor) -> str:
    """Return block and term, and the maximum as a multiple of the mean.

    >>> import torch
    >>> _row_name("layer3.1", "unary", torch.ones(2, 3))
    'layer3.1 unary\\nnearly uniform'
    """
    between = " " if len(block) + len(term) < _LABEL_LETTERS else "\n"
    peak = f"max {float(attention.max() / attention.mean()):.3g} x uniform"
    return f"{in_figure(block)}{between}{term}\n{'nearly uniform' if is_nearly_uniform(attention) else peak}"


def _middle_frame(time: int, times: int, frames: int) -> int:
    return int((time + 0.5) / times * frames)


def clip_position(point: ClipPoint, frames: NDArray[np.uint8], terms: Terms) -> ClipPoint:
    """Return the position (time, row, column) on a block's map that contains a pixel of the clip."""
    time, row, column = map(cell_of, point, frames.shape[:3], terms.size)
    return time, row, column


def _check(frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint]) -> None:
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"frames must be (T, H, W, 3) of uint8, got {frames.shape} of {frames.dtype}")
    if not blocks or not points:
        raise ValueError("a figure of a clip needs at least one block and one query point")
    for name, terms in blocks.items():
        if len(terms.size) != 3:
            raise ValueError(f"{name}: expected a 3d block, got one with a map of {terms.size}")
    for point in points:
        if not all(0 <= index < length for index, length in zip(point, frames.shape[:3], strict=True)):
            raise ValueError(f"point (frame, row, column) = {point} is outside the clip of {frames.shape[:3]}")
