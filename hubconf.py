"""Entry points of torch.hub: ``torch.hub.load("FOLDER OR GITHUB REPOSITORY", "nonlocal_block", 512, "dnl")``."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "src"))

dependencies = ["torch", "numpy"]  # `model` needs the other dependencies of the package too


def nonlocal_block(channels: int, variant: str = "dnl", **options: Any) -> Any:
    """Return a `dnlnet.NonLocalBlock`; the options are its own."""
    import dnlnet

    return dnlnet.NonLocalBlock(channels, variant, **options)


def model(name: str = "pets") -> Any:
    """Return an included model, as `dnlnet.load` does."""
    import dnlnet

    return dnlnet.load(name)
