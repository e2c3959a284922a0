"""Figure of a confusion matrix."""

# K classes

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from dnlnet.data.classes import Classes
from dnlnet.names import in_figure

_MAX_NUMBERED = 30  # classes whose cells still have room for numbers


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
    size = 8 if len(classes) <= _MAX_NUMBERED else 4
    axes.set_xticks(ticks, names, rotation=60, ha="right", rotation_mode="anchor", fontsize=size)
    axes.set_yticks(ticks, names, fontsize=size)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    if len(classes) <= _MAX_NUMBERED:
        for row, column in zip(*np.nonzero(shares >= 0.005), strict=True):
            share = shares[row, column]
            colour = "white" if share < 0.6 else "black"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(matrix, ax=axes, fraction=0.04, label="share of the label's pixels")
    return figure
