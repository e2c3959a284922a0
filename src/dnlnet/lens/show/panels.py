"""Building blocks of figures: image panels, heat maps, query marks, legends and saving."""

# H, W size of the image

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from textwrap import wrap

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.files import SIGNATURE, atomic_write
from dnlnet.lens.show.strength import LEARNT_LITTLE, TICKS, brightness, is_nearly_uniform
from dnlnet.names import in_figure

Pixels = NDArray[np.float32] | NDArray[np.uint8]  # (H, W, 3) in 0..1 or 0..255

SIDE = 2.35  # inches of one panel
SCALE = 0.7  # inches of a colour bar
PRINT_DOTS = 300  # dots per inch for print
_HEAT = "inferno"
_MAX_ASPECT = 3  # of a panel
_MAX_TALL = 2  # height of a figure with many rows, in widths
_TITLE_LETTERS = 28  # per line above a panel
_MARK_COLOURS = ("#00d5ff", "#7dff6a", "#ff5ad1", "#ffe14d")


@dataclass(frozen=True)
class QueryMark:
    """Numbered query point, with the outline of its cell on the block's map."""

    number: int
    row: float
    column: float
    cell: tuple[float, float, float, float] | None = None  # left, top, width, height in pixels

    @classmethod
    def of_cell(cls, number: int, position: tuple[int, int], cell: tuple[float, float]) -> "QueryMark":
        """Mark the centre of the cell at a position (row, column); `cell` is its height and width in pixels."""
        (row, column), (height, width) = position, cell
        top, left = row * height, column * width
        return cls(number, top + height / 2 - 0.5, left + width / 2 - 0.5, (left, top, width, height))

    def draw(self, axes: Axes) -> None:
        """Draw the point and its cell."""
        colour = _MARK_COLOURS[self.number % len(_MARK_COLOURS)]
        if self.cell is not None:
            left, top, width, height = self.cell
            axes.add_patch(
                Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=colour, linewidth=1)
            )
        axes.plot(
            self.column,
            self.row,
            "o",
            markersize=8,
            markerfacecolor=colour,
            markeredgecolor="black",
            markeredgewidth=1,
        )
        axes.annotate(
            str(self.number + 1),
            (self.column, self.row),
            ha="center",
            va="center_baseline",
            fontsize=6,
            fontweight="bold",
        )


def new_figure(width: float, height: float, title: str | None = None, *, tight: bool = False) -> Figure:
    """Create a figure of this size in inches, taller by the title; `tight` leaves little space between panels."""
    figure = Figure(figsize=(width, height + (0.4 if title else 0)), layout="constrained")
    if tight:
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.01, hspace=0.01)  # type: ignore[union-attr,call-arg]
    if title:
        figure.suptitle(in_figure(title, 100), fontsize=12, fontweight="bold")
    return figure


def blank(axes: Axes) -> None:
    """Remove frame and ticks."""
    axes.set_frame_on(False)
    axes.set_xticks([])
    axes.set_yticks([])


def panel_height(size: tuple[int, int]) -> float:
    """Return the height in inches of a panel for an image of this height and width; narrow images are stretched.

    >>> panel_height((100, 200)), panel_height((1000, 1)) / SIDE, panel_height((1, 1000)) / SIDE
    (1.175, 3.0, 0.3333333333333333)
    """
    height, width = size
    return SIDE * min(max(height / width, 1 / _MAX_ASPECT), _MAX_ASPECT)


def column_groups(count: int, row: float, width: float) -> int:
    """Return in how many groups, side by side, to draw rows; otherwise, a figure would be a narrow strip.

    Args:
        count: Number of rows.
        row: Height of a row.
        width: Width of a group.

    >>> column_groups(4, 1.6, 7.5), column_groups(14, 1.6, 7.5), column_groups(84, 1.6, 7.5)
    (1, 2, 3)
    """
    groups = 1
    while groups < count and ceil(count / groups) * row > _MAX_TALL * groups * width:
        groups += 1
    return groups


def draw_panel(axes: Axes, pixels: Pixels, title: str, marks: Sequence[QueryMark] = ()) -> None:
    """Draw pixels, or values (H, W) in 0..1 as heat, with a title and marks."""
    height, width = pixels.shape[:2]
    aspect = panel_height((height, width)) / SIDE * width / height
    axes.imshow(pixels, cmap=_HEAT, vmin=0, vmax=1, interpolation="nearest", aspect=aspect)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    for mark in marks:
        mark.draw(axes)


def draw_heat(
    axes: Axes, pixels: NDArray[np.uint8], strength: Tensor, title: str, marks: Sequence[QueryMark] = ()
) -> None:
    """Draw a map (H, W) in multiples of uniform attention. The title says if it is nearly uniform."""
    note = wrap(LEARNT_LITTLE, _TITLE_LETTERS) if is_nearly_uniform(strength) else []
    draw_panel(axes, overlay_heat(pixels, strength), "\n".join(filter(None, [title, *note])), marks)


def draw_scale(figure: Figure | SubFigure, places: Sequence[Axes]) -> None:
    """Draw the colour bar of heat maps on the right of their axes."""
    heat = ScalarMappable(Normalize(0, 1), _HEAT)
    bar = figure.colorbar(heat, ax=places, fraction=0.03, pad=0.01, aspect=30, shrink=0.9)
    names = ["uniform" if times == 1 else f"{times} \N{MULTIPLICATION SIGN}" for times in TICKS]
    bar.set_ticks(brightness(torch.tensor(TICKS)).tolist(), labels=names)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)


def draw_legend(axes: Axes, classes: Classes, shown: Sequence[int]) -> None:
    """Draw a legend of the classes in `shown`."""
    axes.set_axis_off()
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=[part / 255 for part in classes.palette[k]]) for k in shown],
        [in_figure(classes.names[k]) for k in shown],
        loc="center",
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        handleheight=1.2,
        ncols=1 + len(shown) // 9,
    )


def overlay_heat(pixels: NDArray[np.uint8], strength: Tensor) -> NDArray[np.float32]:
    """Overlay a heat map (H, W), given in multiples of uniform attention, on the darkened grey image.

    >>> overlay_heat(np.zeros((2, 3, 3), dtype=np.uint8), torch.ones(2, 3)).shape
    (2, 3, 3)
    """
    warmth = brightness(strength).numpy()
    grey = pixels.mean(axis=2, keepdims=True) / 255
    colour = np.asarray(matplotlib.colormaps[_HEAT](warmth))[..., :3] * (0.6 + 0.4 * grey)
    weight = 0.85 * warmth[..., None]
    blended: NDArray[np.float32] = ((1 - weight) * 0.45 * grey + weight * colour).astype(np.float32)
    return blended


def save_figure(figure: Figure, path: Path, dots: int = 150) -> None:
    """Write the figure atomically, in the format that the path's suffix names, with `dots` per inch."""
    with atomic_write(path) as temporary:
        write_figure(figure, temporary, dots)


def write_figure(figure: Figure, target: Path | BytesIO, dots: int) -> None:
    """Write the figure to a path or, as PNG, into memory."""
    # Type 42 fonts: printers refuse matplotlib's default, Type 3.
    with matplotlib.rc_context({"pdf.fonttype": 42}), warnings.catch_warnings():
        # Missing glyphs are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        form = (target.suffix[1:] if isinstance(target, Path) else "") or "png"
        sign = {"Software" if form == "png" else "Creator": SIGNATURE} if form in ("png", "pdf", "svg") else None
        figure.savefig(target, dpi=dots, facecolor="white", format=form, metadata=sign)
