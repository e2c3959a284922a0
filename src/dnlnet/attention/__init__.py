"""The attention block. Needs only torch, and not even that for variants and settings, which are plain data."""

from dnlnet.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
