"""Base classes of results that draw themselves: in a window, a file or a notebook."""

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

_SCREEN_DOTS = 110  # per inch


class Drawable(ABC):
    """Result with ``show()``, ``save("result.png")`` and ``plot()``; notebooks display it."""

    @abstractmethod
    def plot(self) -> Figure:
        """Return a figure to edit or publish."""

    def show(self) -> None:
        """Show the result below the notebook cell, or else in an image viewer."""
        if _in_notebook():
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
        elif not ImageShow.show(self._image()):
            raise ValueError("found no image viewer; write a file with save(path)")

    def save(self, path: Path | str) -> None:
        """Write the figure, in the format that the suffix names (PNG, PDF, ...)."""
        save_figure(self.plot(), Path(path), PRINT_DOTS)

    def _image(self) -> Image.Image:
        return Image.open(BytesIO(self._repr_png_()))

    def _repr_png_(self) -> bytes:
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
