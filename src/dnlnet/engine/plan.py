"""Expected duration of a run, from its first iterations."""

from collections.abc import Sequence
from pathlib import Path

_LEAST_SECONDS, _SLOW_SECONDS = 2.0, 5.0


def is_measured(iterations: int, seconds: float) -> bool:
    """Return whether the first iterations, and the seconds they took, allow an estimate.

    The first iteration is slower than the others, so a second one is awaited unless that would take long.

    >>> is_measured(1, 0.3), is_measured(2, 0.5), is_measured(2, 2.1), is_measured(1, 7.0), is_measured(300, 2.1)
    (False, False, True, True, True)
    """
    return seconds > (_LEAST_SECONDS if iterations > 1 else _SLOW_SECONDS)


def plan_text(seconds: Sequence[float], iteration: int, total: int, first_score: int | None, folder: Path) -> str:
    """Say how long a run will take, when it is scored first, and where its results go.

    Args:
        seconds: Durations of the latest iterations, the first of which may be slower.
        iteration: Number of finished iterations.
        total: Number of iterations of the run.
        first_score: Iteration of the next evaluation, or None if there are none.
        folder: Folder of the run.

    >>> plan_text([9.0, 7.0, 7.0], 3, 1503, 103, Path("runs/mine")).split("; ")  # doctest: +NORMALIZE_WHITESPACE
    ['about 2.9 h for 1500 iterations, plus evaluations', 'first score after iteration 103, in about 12 min',
     'results: runs/mine']
    """
    later = list(seconds)[1:] or seconds
    each = sum(later) / len(later)
    left = f"about {duration_text(each * (total - iteration))} for {total - iteration} iterations"
    if first_score is None:
        return f"{left}; results: {folder}"
    soon = duration_text(each * (first_score - iteration))
    return f"{left}, plus evaluations; first score after iteration {first_score}, in about {soon}; results: {folder}"


def duration_text(seconds: float) -> str:
    """Format a duration with about two significant digits.

    >>> [duration_text(value) for value in (0.4, 75, 2880, 10_440, 300_000)]
    ['1 s', '75 s', '48 min', '2.9 h', '3.5 days']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.1f} days"


def speed_text(speed: float) -> str:
    """Format a speed with at least two significant digits.

    >>> speed_text(123.4), speed_text(2.345), speed_text(0.0123)
    ('123', '2.3', '0.012')
    """
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}" if speed >= 1 else f"{speed:.2g}"
