"""Disentangled non-local networks: the attention block, the paper's systems, and its analysis as tools.

>>> import torch, dnlnet
>>> block = dnlnet.NonLocalBlock(64, "dnl")
>>> block(torch.randn(1, 64, 8, 8)).shape
torch.Size([1, 64, 8, 8])
"""

import sys
from types import ModuleType
from typing import Any

from dnlnet.lazy import attach, provide

__version__ = "0.2.0"

# The names are in `__init__.pyi`; each is imported when it is first used, so that the command's help need not wait.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
provide("DrawableMaps", "dnlnet.lens.show.map_figure")  # `AttentionMaps.plot` draws with it


class _Package(ModuleType):
    """Keep `dnlnet.export` and `dnlnet.convert` functions when the folders of these names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
