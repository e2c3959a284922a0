"""Figures of numbers: the profile of every head, the overlaps of Table 1, and a confusion matrix."""

# K classes

from collections.abc import Mapping
from math import nan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.lens.measure.consistency import RANDOM, TABLE_1, Average
from dnlnet.lens.measure.profile import Profile
from dnlnet.names import in_figure

# Title of a panel; the statistic shown, or two whose difference is shown; and a key of the colour scale, which panels
# may share.
_PANELS: tuple[tuple[str, str, str | None, str], ...] = (
    ("unary share\nof the logits' variance", "unary_share", None, "share of variance"),
    ("dependence\non the query", "dependence", None, "share of variance"),
    ("effective number\nof positions", "positions", None, "positions"),
    ("share of the\nstrongest position", "strongest", None, "share of attention"),
    ("share of the\nprefix tokens", "prefix", None, "share of attention"),
    ("attention within\nthe query's class", "attention_within", None, "within class"),
    ("pairwise within\nthe query's class", "pair_within", None, "within class"),
    ("within the class:\npairwise - attention", "pair_within", "attention_within", "difference"),
    ("on boundaries:\npairwise - uniform", "pair_boundary", "uniform_boundary", "difference of boundary"),
    ("on boundaries:\nunary - uniform", "unary_boundary", "uniform_boundary", "difference of boundary"),
)
_OVERLAPS = ("pair_within", "pair_boundary", "unary_boundary")
_MAX_HEADS, _MAX_CLASSES = 12, 30  # as many columns still have room for numbers


def profile_figure(profile: Profile, title: str | None = None) -> Figure:
    """Draw each statistic of each head, averaged over images, with numbers in the cells if there is room.

    >>> from dnlnet.lens.measure.profile import HeadProfile
    >>> heads = tuple(HeadProfile(f"blocks.{n}", head, {"dependence": (0.5,)}) for n in range(3) for head in range(2))
    >>> [axes.get_title() for axes in profile_figure(Profile(heads)).axes if axes.get_title()]
    ['dependence\\non the query']
    """
    grids = {
        heading: (_grid(profile, first, second), scale)
        for heading, first, second, scale in _PANELS
        if {first, second or first} <= set(profile.statistics)
    }
    grids = {heading: found for heading, found in grids.items() if not np.isnan(found[0]).all()}
    if not grids:
        raise ValueError("the profile has no values to draw")
    layers = [in_figure(row.layer) for row in profile.layers()]
    heads = max(grid.shape[1] for grid, _ in grids.values())
    columns = min(len(grids), 5)
    rows = -(-len(grids) // columns)
    wide = min(max(0.42 * heads, 1.8), 5.0)
    size = (columns * (wide + 0.75) + 0.07 * max(map(len, layers)), rows * (0.24 * len(layers) + 1.35) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(in_figure(title, 120), fontsize=11)
    places = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for place in places.flat[len(grids) :]:
        place.set_axis_off()
    for number, (place, (heading, (grid, scale))) in enumerate(zip(places.flat, grids.items(), strict=False)):
        together = [other for other, same in grids.values() if same == scale]
        _draw(figure, place, heading, grid, together, diverging=scale.startswith("difference"))
        if number % columns == 0:
            place.set_yticks(range(len(layers)), layers, fontsize=8)
    return figure


def _draw(
    figure: Figure,
    axes: Axes,
    heading: str,
    grid: NDArray[np.float64],
    together: list[NDArray[np.float64]],
    diverging: bool,
) -> None:
    """Draw one panel in colours that suit colour-blind readers; a difference is white at 0."""
    lowest, highest = (float(f([f(g[~np.isnan(g)]) for g in together])) for f in (np.min, np.max))
    if diverging:
        highest = max(abs(lowest), abs(highest), 1e-6)
        lowest = -highest
    shown = axes.imshow(
        np.ma.masked_invalid(grid), "PuOr_r" if diverging else "cividis", aspect="auto", vmin=lowest, vmax=highest
    )
    axes.set_title(heading, fontsize=9)
    axes.set_xlabel("head", fontsize=8)
    count = grid.shape[1]
    axes.set_xticks(range(0, count, 1 if count <= 16 else 4))
    axes.tick_params(labelsize=8, length=2)
    figure.colorbar(shown, ax=axes, fraction=0.05, pad=0.02).ax.tick_params(labelsize=7)
    if count > _MAX_HEADS:
        return
    for (layer, head), value in np.ndenumerate(grid):
        if not np.isnan(value):
            red, green, blue, _ = shown.cmap((value - lowest) / max(highest - lowest, 1e-12))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            axes.text(
                head, layer, _short(value), ha="center", va="center", fontsize=6, color="white" if dark else "black"
            )


def _short(value: float) -> str:
    """Format a number in few characters.

    >>> _short(0.5), _short(-0.061), _short(-0.001), _short(163.2)
    ('.50', '-.06', '.00', '163')
    """
    return f"{value:.0f}" if abs(value) >= 1.5 else f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1)


def _grid(profile: Profile, first: str, second: str | None) -> NDArray[np.float64]:
    """Return the means (layers, heads) of a statistic, minus those of another if given; NaN if missing."""
    layers = list(dict.fromkeys(head.layer for head in profile))
    grid = np.full((len(layers), 1 + max(head.head or 0 for head in profile)), np.nan)
    for head in profile:
        values = [head.average(name) for name in (first, second) if name is not None]
        known = [value.mean for value in values if value is not None]
        if len(known) == len(values):
            grid[layers.index(head.layer), head.head or 0] = known[0] - sum(known[1:])
    return grid


def consistency_figure(rows: Mapping[str, Mapping[str, Average | None]]) -> Figure:
    """Draw one bar per block and statistic, with standard errors; the random row is a line.

    >>> bar = Average(0.6, 0.02, images=5)
    >>> figure = consistency_figure({"dnl": dict.fromkeys(TABLE_1, bar), RANDOM: dict.fromkeys(TABLE_1, bar)})
    >>> len(figure.axes[0].patches)
    3
    """
    blocks = [name for name in rows if name != RANDOM]
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    thickness = 0.8 / max(len(blocks), 1)
    for number, block in enumerate(blocks):
        known = [
            (place, average) for place, name in enumerate(_OVERLAPS) if (average := rows[block][name]) is not None
        ]
        axes.bar(
            [place - 0.4 + thickness * (number + 0.5) for place, _ in known],
            [average.mean for _, average in known],
            0.92 * thickness,
            yerr=[nan if average.error is None else average.error for _, average in known],
            error_kw={"capsize": 3, "elinewidth": 1},
            label=in_figure(block),
        )
    for place, name in enumerate(_OVERLAPS):
        average = rows[RANDOM][name] if RANDOM in rows else None
        if average is not None:
            label = "random map" if place == 0 else None
            axes.plot(
                [place - 0.45, place + 0.45], [average.mean] * 2, "--", color="0.25", linewidth=1.2, label=label
            )
    axes.set_xticks(range(len(_OVERLAPS)), [TABLE_1[name] for name in _OVERLAPS])
    axes.set_ylabel("share of the attention")
    axes.set_ylim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure


def confusion_figure(counts: Tensor, classes: Classes) -> Figure:
    """Plot a confusion matrix: the share of each label's pixels (row) by prediction (column).

    Args:
        counts: Pixel counts (K, K), label by prediction.
        classes: Classes that name rows and columns.

    >>> import torch
    >>> figure = confusion_figure(torch.eye(2), Classes(["sky", "road"], [(0, 0, 0), (9, 9, 9)]))
    >>> [text.get_text() for text in figure.axes[0].get_xticklabels()]
    ['sky', 'road']
    """
    total = counts.sum(dim=1, keepdim=True).double()
    shares = (counts / total.clamp(min=1)).numpy()
    side = max(4.0, 0.42 * len(classes) + 2.2)
    figure = Figure(figsize=(side + 0.8, side), layout="tight")
    axes = figure.subplots()
    matrix = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1)
    ticks = np.arange(len(classes))
    names = [in_figure(name) for name in classes.names]
    size = 8 if len(classes) <= _MAX_CLASSES else 4
    axes.set_xticks(ticks, names, rotation=60, ha="right", rotation_mode="anchor", fontsize=size)
    axes.set_yticks(ticks, names, fontsize=size)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    if len(classes) <= _MAX_CLASSES:
        for row, column in zip(*np.nonzero(shares >= 0.005), strict=True):
            share = shares[row, column]
            colour = "white" if share < 0.6 else "black"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(matrix, ax=axes, fraction=0.04, label="share of the label's pixels")
    return figure
