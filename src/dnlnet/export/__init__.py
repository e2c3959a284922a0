"""Export of trained networks for other programs: inputs and outputs, attention, and files."""

from dnlnet.export.network import FREE_AXES, Axes, Exportable, Query, WithMaps
from dnlnet.export.portable_attention import Attention, portable

__all__ = ["FREE_AXES", "Attention", "Axes", "Exportable", "Query", "WithMaps", "portable"]
