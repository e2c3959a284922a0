"""Attention seen from outside: maps, statistics, figures and a page, and the paper's equations checked."""

from dnlnet.lens.capture import Captured, capture

__all__ = ["Captured", "capture"]
