"""Networks that turn images or clips into feature maps."""

from dnlnet.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
