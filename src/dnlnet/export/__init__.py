"""Trained networks for other programs: what goes in and out, how they attend, and the files they become."""

from dnlnet.export.network import FREE_AXES, Axes, Exportable, Query, WithMaps
from dnlnet.export.portable_attention import Attention, portable

__all__ = ["FREE_AXES", "Attention", "Axes", "Exportable", "Query", "WithMaps", "portable"]
