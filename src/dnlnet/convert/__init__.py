"""Conversion of other code bases' checkpoints to model files."""

from dnlnet.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
