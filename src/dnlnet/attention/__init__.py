"""The attention block; needs torch alone, and only for what computes: variants and settings are plain data."""

from dnlnet.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
