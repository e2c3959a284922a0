"""Bar chart of the overlaps of Table 1."""

from collections.abc import Mapping
from math import nan

from matplotlib.figure import Figure

from dnlnet.lens.measure.consistency import RANDOM, STATISTICS, Average
from dnlnet.names import in_figure

_SHOWN = ("pair_within", "pair_boundary", "unary_boundary")


def consistency_figure(rows: Mapping[str, Mapping[str, Average | None]]) -> Figure:
    """Draw one bar per block and statistic, with standard errors; the random row is a line.

    >>> bar = Average(0.6, 0.02, images=5)
    >>> figure = consistency_figure({"dnl": dict.fromkeys(STATISTICS, bar), RANDOM: dict.fromkeys(STATISTICS, bar)})
    >>> len(figure.axes[0].patches)
    3
    """
    blocks = [name for name in rows if name != RANDOM]
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    thickness = 0.8 / max(len(blocks), 1)
    for number, block in enumerate(blocks):
        known = [(place, average) for place, name in enumerate(_SHOWN) if (average := rows[block][name]) is not None]
        axes.bar(
            [place - 0.4 + thickness * (number + 0.5) for place, _ in known],
            [average.mean for _, average in known],
            0.92 * thickness,
            yerr=[nan if average.error is None else average.error for _, average in known],
            error_kw={"capsize": 3, "elinewidth": 1},
            label=in_figure(block),
        )
    for place, name in enumerate(_SHOWN):
        average = rows[RANDOM][name] if RANDOM in rows else None
        if average is not None:
            label = "random map" if place == 0 else None
            axes.plot(
                [place - 0.45, place + 0.45], [average.mean] * 2, "--", color="0.25", linewidth=1.2, label=label
            )
    axes.set_xticks(range(len(_SHOWN)), [STATISTICS[name] for name in _SHOWN])
    axes.set_ylabel("share of the attention")
    axes.set_ylim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure
