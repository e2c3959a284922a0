"""Checkpoints of other code bases as model files of this package."""

from dnlnet.convert.family import Checkpoint, Converted, Family

__all__ = ["Checkpoint", "Converted", "Family"]
