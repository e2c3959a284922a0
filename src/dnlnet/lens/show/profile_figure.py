"""Figure of a profile: one heat map per statistic, with a row per layer and a column per head."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

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
_MAX_NUMBERED = 12  # heads whose cells still have room for numbers


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
    if count > _MAX_NUMBERED:
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
