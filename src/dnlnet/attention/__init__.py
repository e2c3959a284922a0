"""The attention block; needs torch alone."""

from dnlnet.attention.block import NonLocal1d, NonLocal2d, NonLocal3d, NonLocalBlock
from dnlnet.attention.insert import insert
from dnlnet.attention.maps import AttentionMaps, Terms
from dnlnet.attention.spec import PRESETS, VARIANTS, Settings, Variant

__all__ = [
    "PRESETS",
    "VARIANTS",
    "AttentionMaps",
    "NonLocal1d",
    "NonLocal2d",
    "NonLocal3d",
    "NonLocalBlock",
    "Settings",
    "Terms",
    "Variant",
    "insert",
]
