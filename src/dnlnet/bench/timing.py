"""The best time of several calls that take turns."""

from collections.abc import Callable, Mapping
from time import perf_counter


def best_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each call, by name: all in turn, `rounds` times, the best of each.

    On a busy machine the minimum is the part that is ours; taking turns lets what disturbs one meet the others too.

    >>> list(best_times({"nothing": lambda: None}, rounds=2))
    ['nothing']
    """
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = perf_counter()
            call()
            best[name] = min(best[name], perf_counter() - start)
    return best
