"""Disentangled non-local networks: the attention block, the paper's systems, and its analysis as tools.

>>> import torch, dnlnet
>>> block = dnlnet.NonLocalBlock(64, "dnl")
>>> block(torch.randn(1, 64, 8, 8)).shape
torch.Size([1, 64, 8, 8])
"""

from dnlnet.lazy import attach, provide

__version__ = "0.2.0"

# The names are in `__init__.pyi`; each is imported when it is first used, so that the command's help need not wait.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
provide("DrawableMaps", "dnlnet.lens.show.map_figure")  # `AttentionMaps.plot` draws with it
