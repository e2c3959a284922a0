"""Results that can be looked at: in a window, in a file, as a figure, in a notebook."""

import sys
from abc import ABC, abstractmethod
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageShow

from dnlnet.files import atomic_write
from dnlnet.lens.show.panels import PRINT_DOTS, save_figure, write_figure

SCREEN_DOTS = 110  # per inch


class Drawable(ABC):
    """A result that draws itself: ``show()``, ``save("result.png")``, ``plot()``; a notebook shows it by itself."""

    @abstractmethod
    def plot(self) -> Figure:
        """A figure of it, to be changed or put into a paper."""

    def show(self) -> None:
        """Show it: in a notebook below the cell, elsewhere in the program that shows pictures."""
        if _in_notebook():
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
        elif not ImageShow.show(self._picture()):
            raise ValueError("found no program that shows pictures; write it to a file with save(path)")

    def save(self, path: Path | str) -> None:
        """Write it as PNG, PDF or whatever the name's suffix says."""
        save_figure(self.plot(), Path(path), PRINT_DOTS)

    def _picture(self) -> Image.Image:
        return Image.open(BytesIO(self._repr_png_()))

    def _repr_png_(self) -> bytes:
        return figure_png(self.plot())


class DrawableOverlay(Drawable):
    """A result that is drawn over the picture that it is of."""

    @abstractmethod
    def overlay(self) -> NDArray[np.uint8]:
        """(H, W, 3), the result over the picture."""

    def save(self, path: Path | str) -> None:
        """Write the overlay, in pixels of the picture; ``plot().savefig`` writes the figure."""
        with atomic_write(Path(path)) as temporary:
            self._picture().save(temporary)

    def _picture(self) -> Image.Image:
        return Image.fromarray(self.overlay())


def _in_notebook() -> bool:
    """Whether a kernel runs this program; that its package is loaded says nothing, other libraries load it too."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def figure_png(figure: Figure, dots: int = SCREEN_DOTS) -> bytes:
    """A figure as a PNG file.

    >>> figure_png(Figure(figsize=(1, 1)))[:4]
    b'\\x89PNG'
    """
    buffer = BytesIO()
    write_figure(figure, buffer, dots)
    return buffer.getvalue()
