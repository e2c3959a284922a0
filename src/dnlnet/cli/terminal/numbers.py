"""Numbers as they are given on the command line."""

from math import isfinite

import typer

LARGEST_SEED = 2**32 - 1  # generators of some libraries take no larger one
MOST_THREADS = 1024  # or processes; more are a slip of the finger


def finite(value: float | None) -> float | None:
    """The callback of an option whose bounds would let `nan` pass, and `inf` where one is missing.

    >>> finite(0.5)
    0.5
    """
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def parse_counts(option: str, text: str, most: int = 65_536) -> list[int]:
    """Whole numbers within 1..most, separated by commas.

    >>> parse_counts("--batch", "1, 8")
    [1, 8]
    """
    counts = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 10 and 1 <= int(word) <= most for word in counts):
        raise ValueError(f"{option} {text[:60]}: expected whole numbers within 1..{most}, separated by commas")
    return [int(word) for word in counts]
