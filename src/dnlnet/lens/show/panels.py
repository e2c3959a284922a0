"""Building blocks of attention figures: pictures, heat maps and marked points."""

# H, W size of the picture

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import wrap

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.files import atomic_write
from dnlnet.lens.show.attended_image import LEARNT_LITTLE, is_nearly_uniform
from dnlnet.names import in_figure
from dnlnet.results import SIGNATURE

Pixels = NDArray[np.float32] | NDArray[np.uint8]  # (H, W, 3) in 0..1 or 0..255

SIDE = 2.35  # inches of one panel
SCALE = 0.7  # inches of a colour bar
PRINT_DOTS = 300  # per inch, as printers need it
HEAT = "inferno"
_STRIPE = 3  # largest aspect ratio of a panel
DIM = 6  # a nearly uniform map is painted as if there were values so many times as strong
_LETTERS = 28  # of a line above a panel
_COLOURS = ("#00d5ff", "#7dff6a", "#ff5ad1", "#ffe14d")


@dataclass(frozen=True)
class Mark:
    """A numbered point, with the cell of the block's map around it, if that is to be drawn."""

    number: int
    row: float
    column: float
    cell: tuple[float, float, float, float] | None = None  # left, top, width, height in pixels

    @classmethod
    def of_cell(cls, number: int, position: tuple[int, int], cell: tuple[float, float]) -> "Mark":
        """Mark the middle of the cell at a position (row, column); `cell` is its height and width in pixels."""
        (row, column), (height, width) = position, cell
        top, left = row * height, column * width
        return cls(number, top + height / 2 - 0.5, left + width / 2 - 0.5, (left, top, width, height))

    @property
    def colour(self) -> str:
        """The colour of the mark; neighbouring numbers differ."""
        return _COLOURS[self.number % len(_COLOURS)]

    def draw(self, axes: Axes) -> None:
        """Draw it, and the cell."""
        if self.cell is not None:
            left, top, width, height = self.cell
            axes.add_patch(
                Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=self.colour, linewidth=1)
            )
        axes.plot(
            self.column,
            self.row,
            "o",
            markersize=8,
            markerfacecolor=self.colour,
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


def panel_height(size: tuple[int, int]) -> float:
    """Height in inches of a panel for a picture of this height and width; narrow ones are stretched.

    >>> panel_height((100, 200)), panel_height((1000, 1)) / SIDE, panel_height((1, 1000)) / SIDE
    (1.175, 3.0, 0.3333333333333333)
    """
    height, width = size
    return SIDE * min(max(height / width, 1 / _STRIPE), _STRIPE)


def draw_panel(axes: Axes, pixels: Pixels, title: str, marks: Sequence[Mark] = ()) -> None:
    """Show the pixels, or values (H, W) in 0..1 as heat, under a title, with the marks on them."""
    height, width = pixels.shape[:2]
    aspect = panel_height((height, width)) / SIDE * width / height
    axes.imshow(pixels, cmap=HEAT, vmin=0, vmax=1, interpolation="nearest", aspect=aspect)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    for mark in marks:
        mark.draw(axes)


def draw_scale(figure: Figure | SubFigure, places: Sequence[Axes], strongest: str = "strongest") -> None:
    """Draw the colour bar of heat maps on the right of their axes; `strongest` says what is brightest."""
    heat = ScalarMappable(PowerNorm(0.5, 0, 1), HEAT)
    bar = figure.colorbar(heat, ax=places, fraction=0.03, pad=0.01, aspect=30, shrink=0.9)
    bar.set_ticks([0, 0.25, 1], labels=["0", "¼", strongest])
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)


def draw_legend(axes: Axes, classes: Classes, shown: Sequence[int] | None = None) -> None:
    """Draw a legend of the classes, or of those in `shown`."""
    axes.set_axis_off()
    which = range(len(classes)) if shown is None else shown
    handles = [Rectangle((0, 0), 1, 1, color=[part / 255 for part in classes.palette[k]]) for k in which]
    axes.legend(
        handles,
        [in_figure(classes.names[k]) for k in which],
        loc="center",
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        handleheight=1.2,
        ncols=1 + len(handles) // 9,
    )


def result_figure(pixels: NDArray[np.uint8], classes: Classes, shares: Mapping[str, float]) -> Figure:
    """A result over its picture (H, W, 3), with a legend of the first classes and the share of each.

    >>> sky = Classes(["sky"], [(0, 0, 255)])
    >>> drawn = result_figure(np.zeros((2, 3, 3), np.uint8), sky, {"sky": 0.6}).axes[0]
    >>> [text.get_text() for text in drawn.get_legend().texts]
    ['sky 60 %']
    """
    shape = pixels.shape[0], pixels.shape[1]
    wide = 2.2 * SIDE
    high = panel_height(shape) * 2.2
    shown = [(name, share) for name, share in shares.items() if share >= 0.005][: max(3, int(high / 0.2))]
    colours = [[part / 255 for part in classes.palette[classes.names.index(name)]] for name, _ in shown]
    labels = [f"{in_figure(name, 20)} {100 * share:.0f} %" for name, share in shown]
    longest = max(map(len, labels), default=0)
    figure = Figure(figsize=(wide + 0.5 + 0.075 * longest, high), layout="constrained")
    axes = figure.subplots()
    draw_panel(axes, pixels, "")
    axes.set_frame_on(False)
    axes.set_anchor("NW")
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=colour) for colour in colours],
        labels,
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        borderaxespad=0,
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        handleheight=1.2,
    )
    return figure


def overlay_heat(pixels: NDArray[np.uint8], attention: Tensor, strongest: float | None = None) -> NDArray[np.float32]:
    """Overlay a heat map of the attention's square root (H, W) on the darkened grey picture.

    `strongest` is the brightest value; default: the 99th percentile, or of a nearly uniform map more than it has.

    >>> overlay_heat(np.zeros((2, 3, 3), dtype=np.uint8), torch.ones(2, 3)).shape
    (2, 3, 3)
    """
    if strongest is None:
        strongest = float(np.quantile(attention.numpy(), 0.99)) * (DIM if is_nearly_uniform(attention) else 1)
    warmth = (attention / max(strongest, torch.finfo(torch.float32).tiny)).clamp(0, 1).sqrt().numpy()
    grey = pixels.mean(axis=2, keepdims=True) / 255
    colour = np.asarray(matplotlib.colormaps[HEAT](warmth))[..., :3] * (0.6 + 0.4 * grey)
    weight = 0.85 * warmth[..., None]
    blended: NDArray[np.float32] = ((1 - weight) * 0.45 * grey + weight * colour).astype(np.float32)
    return blended


def noted(title: str, attention: Tensor) -> str:
    """The title of a map, with what is to be said of one that is nearly uniform.

    >>> noted("unary", torch.ones(2, 3))
    'unary\\nnearly uniform: this block\\nhas learnt little yet'
    """
    return "\n".join([title, *wrap(LEARNT_LITTLE, _LETTERS)]) if is_nearly_uniform(attention) else title


def save_figure(figure: Figure, path: Path, dots: int = 150) -> None:
    """Write the figure atomically, as PNG, PDF or whatever the name's suffix says, with `dots` per inch."""
    with atomic_write(path) as temporary:
        write_figure(figure, temporary, dots)


def write_figure(figure: Figure, target: Path | BytesIO, dots: int) -> None:
    """Write the figure, with fonts that printers take, to a path or, as PNG, into memory."""
    with matplotlib.rc_context({"pdf.fonttype": 42}), warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        form = (target.suffix[1:] if isinstance(target, Path) else "") or "png"
        sign = {"Software" if form == "png" else "Creator": SIGNATURE} if form in ("png", "pdf", "svg") else None
        figure.savefig(target, dpi=dots, facecolor="white", format=form, metadata=sign)
