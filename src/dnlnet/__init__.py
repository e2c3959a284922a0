"""Disentangled non-local networks: the attention block, the paper's systems, and its analysis as tools.

>>> import torch, dnlnet
>>> block = dnlnet.NonLocalBlock(64, "dnl")
>>> block(torch.randn(1, 64, 8, 8)).shape
torch.Size([1, 64, 8, 8])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from dnlnet.attention import PRESETS as PRESETS
    from dnlnet.attention import VARIANTS as VARIANTS
    from dnlnet.attention import AttentionMaps as AttentionMaps
    from dnlnet.attention import NonLocal1d as NonLocal1d
    from dnlnet.attention import NonLocal2d as NonLocal2d
    from dnlnet.attention import NonLocal3d as NonLocal3d
    from dnlnet.attention import NonLocalBlock as NonLocalBlock
    from dnlnet.attention import Settings as Settings
    from dnlnet.attention import Variant as Variant
    from dnlnet.attention import insert as insert
    from dnlnet.recipes.load import TrainedModel as TrainedModel
    from dnlnet.recipes.load import load as load

# Imported when first used, so that `dnlnet --help` need not wait for torch.
_PUBLIC = dict.fromkeys(
    (
        "PRESETS",
        "VARIANTS",
        "AttentionMaps",
        "NonLocal1d",
        "NonLocal2d",
        "NonLocal3d",
        "NonLocalBlock",
        "Settings",
        "Variant",
        "insert",
    ),
    "dnlnet.attention",
) | dict.fromkeys(("TrainedModel", "load"), "dnlnet.recipes.load")

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dnlnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
