"""Conversion of other code bases' checkpoints to model files."""

from typing import TYPE_CHECKING

from dnlnet.lazy import importer

if TYPE_CHECKING:
    from dnlnet.convert.converting import FAMILIES, convert, read, recognise
    from dnlnet.convert.family import Converted, Family, ForeignCheckpoint

__all__ = ["FAMILIES", "Converted", "Family", "ForeignCheckpoint", "convert", "read", "recognise"]

__getattr__ = importer(
    __name__,
    {
        "dnlnet.convert.converting": "FAMILIES convert read recognise",
        "dnlnet.convert.family": "Converted Family ForeignCheckpoint",
    },
)
