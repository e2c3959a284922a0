"""The attention block. Needs only torch, and not even that for variants and settings, which are plain data."""

from typing import TYPE_CHECKING

from dnlnet.attention.spec import PRESETS, VARIANTS, BlockSettings, Variant
from dnlnet.lazy import importer

if TYPE_CHECKING:
    from dnlnet.attention.block import NonLocal1d, NonLocal2d, NonLocal3d, NonLocalBlock
    from dnlnet.attention.insertion import insert
    from dnlnet.attention.maps import AttentionMaps, Terms

__all__ = [
    "PRESETS",
    "VARIANTS",
    "AttentionMaps",
    "BlockSettings",
    "NonLocal1d",
    "NonLocal2d",
    "NonLocal3d",
    "NonLocalBlock",
    "Terms",
    "Variant",
    "insert",
]

__getattr__ = importer(
    __name__,
    {
        "dnlnet.attention.block": "NonLocal1d NonLocal2d NonLocal3d NonLocalBlock",
        "dnlnet.attention.insertion": "insert",
        "dnlnet.attention.maps": "AttentionMaps Terms",
    },
)
