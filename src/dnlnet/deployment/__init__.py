"""Export of trained networks for other programs: inputs and outputs, attention, and files."""

from dnlnet.deployment.network import FREE_AXES, Axes, Exportable, Query, WithMaps
from dnlnet.deployment.portable_attention import Attention, portable

__all__ = ["FREE_AXES", "Attention", "Axes", "Exportable", "Query", "WithMaps", "portable"]
