"""Figure of a prediction: the overlay and a legend with the share of each class."""

# H, W size of the image

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from dnlnet.data.classes import Classes
from dnlnet.lens.show.panels import SIDE, draw_panel, panel_height
from dnlnet.names import in_figure

_SCALE = 2.2  # size of the overlay, in panels of other figures


def prediction_figure(overlay: NDArray[np.uint8], classes: Classes, shares: Mapping[str, float]) -> Figure:
    """Draw an overlay (H, W, 3) beside a legend of the first classes and the share of each.

    >>> sky = Classes(["sky"], [(0, 0, 255)])
    >>> drawn = prediction_figure(np.zeros((2, 3, 3), np.uint8), sky, {"sky": 0.6}).axes[0]
    >>> [text.get_text() for text in drawn.get_legend().texts]
    ['sky 60 %']
    """
    height = panel_height((overlay.shape[0], overlay.shape[1])) * _SCALE
    shown = [(name, share) for name, share in shares.items() if share >= 0.005][: max(3, int(height / 0.2))]
    colours = [[part / 255 for part in classes.palette[classes.names.index(name)]] for name, _ in shown]
    labels = [f"{in_figure(name, 20)} {100 * share:.0f} %" for name, share in shown]
    longest = max(map(len, labels), default=0)
    figure = Figure(figsize=(_SCALE * SIDE + 0.5 + 0.075 * longest, height), layout="constrained")
    axes = figure.subplots()
    draw_panel(axes, overlay, "")
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
