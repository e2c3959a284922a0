"""Entry points of torch.hub, such as ``torch.hub.load(REPOSITORY, "nonlocal_block", 512, "dnl")``."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "src"))

dependencies = ["torch", "numpy"]  # the trained models need the other dependencies of the package, too


def nonlocal_block(channels: int, variant: str = "dnl", **options: Any) -> Any:
    """Return a `dnlnet.NonLocalBlock`; options are those of the class."""
    import dnlnet

    return dnlnet.NonLocalBlock(channels, variant, **options)


def pets() -> Any:
    """Return the included model `pets`, as `dnlnet.load` does."""
    import dnlnet

    return dnlnet.load("pets")


def street() -> Any:
    """Return the model `street` of the separate package dnlnet-street."""
    import dnlnet

    return dnlnet.load("street")
