"""Time several calls in turn."""

from collections.abc import Callable, Mapping
from time import perf_counter


def best_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best seconds of each call, by name, over `rounds` rounds in which the calls take turns.

    On a busy machine the minimum is the cost of the call itself; taking turns spreads disturbances over all calls.

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
