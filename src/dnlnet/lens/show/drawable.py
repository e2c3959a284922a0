"""Base classes of results that draw themselves in a window, a file or a notebook, and the figure of a prediction.

Loading and predicting need no figures, so matplotlib is imported when one is drawn.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.classes import Classes
from dnlnet.files import atomic_write
from dnlnet.names import in_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCREEN_DOTS = 110  # per inch
_SCALE = 2.2  # size of a prediction, in panels of other figures


class Drawable(ABC):
    """Result with ``show()``, ``save("result.png")`` and ``plot()``; notebooks display it."""

    @abstractmethod
    def plot(self) -> "Figure":
        """Return a figure to edit or publish."""

    def show(self) -> None:
        """Show the result below the notebook cell, or else in an image viewer."""
        if _in_notebook():
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
            return
        from PIL import ImageShow  # it imports IPython

        if not ImageShow.show(self._image()):
            raise ValueError("found no image viewer; write a file with save(path)")

    def save(self, path: Path | str) -> None:
        """Write the figure, in the format that the suffix names (PNG, PDF, ...)."""
        from dnlnet.lens.show.panels import PRINT_DOTS, save_figure

        save_figure(self.plot(), Path(path), PRINT_DOTS)

    def _image(self) -> Image.Image:
        return Image.open(BytesIO(self._repr_png_()))

    def _repr_png_(self) -> bytes:
        from dnlnet.lens.show.panels import write_figure

        buffer = BytesIO()
        write_figure(self.plot(), buffer, _SCREEN_DOTS)
        return buffer.getvalue()


class DrawableOverlay(Drawable):
    """Result that is drawn over its image."""

    @abstractmethod
    def overlay(self) -> NDArray[np.uint8]:
        """Return the image with the result drawn over it, (H, W, 3)."""

    def save(self, path: Path | str) -> None:
        """Write the overlay at the size of the image; ``plot().savefig`` writes the figure."""
        with atomic_write(Path(path)) as temporary:
            self._image().save(temporary)

    def _image(self) -> Image.Image:
        return Image.fromarray(self.overlay())


def _in_notebook() -> bool:
    """Return whether a notebook kernel runs this program. Checking for IPython is not enough: libraries import it."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def prediction_figure(overlay: NDArray[np.uint8], classes: Classes, shares: Mapping[str, float]) -> "Figure":
    """Draw an overlay (H, W, 3) beside a legend of the first classes and the share of each.

    >>> sky = Classes(["sky"], [(0, 0, 255)])
    >>> drawn = prediction_figure(np.zeros((2, 3, 3), np.uint8), sky, {"sky": 0.6}).axes[0]
    >>> [text.get_text() for text in drawn.get_legend().texts]
    ['sky 60 %']
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from dnlnet.lens.show.panels import SIDE, draw_panel, panel_height

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
