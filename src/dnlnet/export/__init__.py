"""Trained networks for other programs: what goes in and out, how they attend, and the files they become."""

from dnlnet.export.attend import Attention, portable
from dnlnet.export.network import FREE_AXES, Axes, Exportable, Query, WithMaps

__all__ = ["FREE_AXES", "Attention", "Axes", "Exportable", "Query", "WithMaps", "portable"]
