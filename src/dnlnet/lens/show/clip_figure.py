"""Figures of a 3d block's attention over a clip: one row per map, one column per frame."""

# T frames, t times on the block's map, H, W size of a frame

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from dnlnet.attention import Terms
from dnlnet.lens.show.attended_image import cell_of, is_nearly_uniform
from dnlnet.lens.show.panels import DIM, SCALE, SIDE, Mark, draw_panel, draw_scale, overlay_heat, panel_height
from dnlnet.names import in_figure

_MOST_FRAMES = 8
_WIDTH, _HEIGHT, _SMALLEST = 10.0, 6.5, 0.5  # inches: of all panels, and of the side of one
_GAP = 0.08  # between two rows
_LABELS = 1.3  # for the names of the rows
_LETTERS = 24  # of a line of these
ClipPoint = tuple[int, int, int]  # (frame, row, column) in frames and pixels of the clip


def clip_figure(
    frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint], *, title: str | None = None
) -> Figure:
    """The frames in a row; below, for each block, its unary map and the pairwise maps of the points over all frames.

    A query lies in one frame and attends to all of them. If a block's map has fewer time steps than the clip has
    frames, each step is shown on its middle frame; of more than eight steps, eight are shown. All frames of a map
    share one colour scale, from zero to its maximum, which is given as a multiple of a uniform map.

    Args:
        frames: (T, H, W, 3) in 0..255.
        blocks: terms of 3d blocks on this clip, by their titles.
        points: the queries, (frame, row, column).
        title: of the figure.

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl", dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    >>> figure = clip_figure(np.zeros((8, 12, 20, 3), np.uint8), {"dnl": terms}, [(3, 6, 10)])
    >>> len(figure.axes)  # four times; the frames, unary, pairwise; and the colour bar
    13
    """
    _check(frames, blocks, points)
    times = min(max(terms.key_size[0] for terms in blocks.values()), _MOST_FRAMES)
    first = next(iter(blocks.values()))
    marks = {n: _mark(n, clip_position(point, frames, first), frames, first) for n, point in enumerate(points)}
    rows: list[tuple[str, Tensor | None, Sequence[int]]] = [("frames", None, range(len(points)))]
    for name, terms in blocks.items():
        positions = [clip_position(point, frames, terms) for point in points]
        maps = terms.maps(positions)
        if maps.unary is not None:
            rows.append((_label(name, "unary", maps.unary[0]), maps.unary[0], []))
        if maps.pairwise is not None:
            rows += [
                (_label(name, f"pairwise of {n + 1}", attention), attention, [n])
                for n, attention in enumerate(maps.pairwise[0])
            ]
    # As large as a screen takes, with the same letters in every figure.
    ratio = panel_height((frames.shape[1], frames.shape[2])) / SIDE
    side = max(_SMALLEST, min(0.75 * SIDE, _WIDTH / times, (_HEIGHT / len(rows) - _GAP) / ratio))
    size = (times * (side + 0.05) + _LABELS + SCALE, len(rows) * (side * ratio + _GAP) + (0.6 if title else 0.35))
    figure = Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.03, wspace=0.01, hspace=0.01)  # type: ignore[union-attr,call-arg]
    if title:
        figure.suptitle(in_figure(title, 100), fontsize=12, fontweight="bold")
    grid = figure.subplots(len(rows), times, squeeze=False)
    for axes, (name, attention, numbers) in zip(grid, rows, strict=True):
        in_frame = [(cell_of(points[number][0], len(frames), times), marks[number]) for number in numbers]
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
    marks: Sequence[tuple[int, Mark]],
) -> None:
    """Draw one map over the frames, or the frames alone, with marks at their time steps."""
    times = len(places)
    over, strongest = None, 1.0
    if attention is not None:
        strongest = DIM if is_nearly_uniform(attention) else 1.0
        smooth = interpolate(
            attention[:, None].float().cpu(), frames.shape[1:3], mode="bilinear", align_corners=False
        )
        over = smooth[:, 0] / smooth.max().clamp(min=1e-30)
    for time, axes in enumerate(places):
        frame = frames[_middle_frame(time, times, len(frames))]
        here = [mark for when, mark in marks if when == time]
        if over is None:
            draw_panel(axes, frame, "", here)
        else:
            draw_panel(axes, overlay_heat(frame, over[time * len(over) // times], strongest), "", here)


def _label(block: str, term: str, attention: Tensor) -> str:
    """The name of a row: block and term, and the maximum over the mean, or that there is little to see.

    >>> import torch
    >>> _label("layer3.1", "unary", torch.ones(2, 3))
    'layer3.1 unary\\nnearly uniform'
    """
    between = " " if len(block) + len(term) < _LETTERS else "\n"
    peak = f"max {float(attention.max() / attention.mean()):.3g} x uniform"
    return f"{in_figure(block)}{between}{term}\n{'nearly uniform' if is_nearly_uniform(attention) else peak}"


def _middle_frame(time: int, times: int, frames: int) -> int:
    """The middle frame of a time step on the block's map."""
    return int((time + 0.5) / times * frames)


def clip_position(point: ClipPoint, frames: NDArray[np.uint8], terms: Terms) -> ClipPoint:
    """The position (time, row, column) of a pixel of the clip on a block's map."""
    time, row, column = map(cell_of, point, frames.shape[:3], terms.size)
    return time, row, column


def _mark(number: int, position: ClipPoint, frames: NDArray[np.uint8], terms: Terms) -> Mark:
    height, width = (length / count for length, count in zip(frames.shape[1:3], terms.size[1:], strict=True))
    return Mark.of_cell(number, position[1:], (height, width))


def _check(frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint]) -> None:
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"frames must be (T, H, W, 3) of uint8, got {frames.shape} of {frames.dtype}")
    if not blocks or not points:
        raise ValueError("a figure of a clip needs at least one block and one query point")
    for name, terms in blocks.items():
        if len(terms.size) != 3:
            raise ValueError(f"{name} is not a 3d block: its map is {terms.size}")
    for point in points:
        if not all(0 <= index < length for index, length in zip(point, frames.shape[:3], strict=True)):
            raise ValueError(f"point (frame, row, column) = {point} is outside the clip of {frames.shape[:3]}")
