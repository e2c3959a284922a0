"""Trained networks for other programs: what goes in and out, how they attend, and the files they become."""

from dnlnet.deployed.attend import Attention, portable
from dnlnet.deployed.network import FREE_AXES, Axes, Deployed, Query, WithMaps

__all__ = ["FREE_AXES", "Attention", "Axes", "Deployed", "Query", "WithMaps", "portable"]
