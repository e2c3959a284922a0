"""Look inside attention: maps, statistics, figures, an explorer page, and checks of the paper's equations."""

from dnlnet.lens.capture import Captured, capture

__all__ = ["Captured", "capture"]
