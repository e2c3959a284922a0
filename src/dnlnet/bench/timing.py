"""Time several calls in turn."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

TURN = 0.05  # seconds
DEVICES = ("cpu", "cuda", "mps", "xpu")


def find_device(name: str) -> str:
    """The name of a device on which a tensor can be made, such as cpu or cuda:1.

    >>> find_device("cpu")
    'cpu'
    """
    if name.split(":")[0] in DEVICES:
        try:
            torch.empty(1, device=name)
            return name
        except (RuntimeError, AssertionError):  # the latter where PyTorch was built without the device
            pass
    raise ValueError(
        f"device {name[:60]!r} cannot be used here; expected one of {', '.join(DEVICES)} that PyTorch finds"
    )


def turn_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each of `rounds` rounds, in which the calls take turns; each turn's best counts.

    Taking turns spreads disturbances over all calls. Each round has another order, since what a call finds in caches
    depends on the one before it: behind a large multiply it takes a few per cent longer than behind its like. A short
    call is repeated during its turn.

    >>> [len(times) for times in turn_times({"nothing": lambda: None, "zero": lambda: 0}, rounds=3).values()]
    [3, 3]
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    draw = Random(0)
    for _ in range(rounds):
        for name in draw.sample(list(calls), len(calls)):
            times[name].append(_best_of_turn(calls[name]))
    return times


def best_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best seconds of each call: on a busy machine the minimum is the cost of the call itself.

    >>> list(best_times({"nothing": lambda: None}, rounds=2))
    ['nothing']
    """
    return {name: min(times) for name, times in turn_times(calls, rounds).items()}


class Compared(NamedTuple):
    """A call's best seconds, and the median over rounds of its time over that of the first call."""

    seconds: float
    ratio: float


def compare_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Compared]:
    """Each call's time, and what it is of the first one's.

    >>> compare_times({"nothing": lambda: None, "zero": lambda: 0}, rounds=2)["nothing"].ratio
    1.0
    """
    times = turn_times(calls, rounds)
    first = next(iter(times.values()))
    return {name: Compared(min(turns), paired_ratio(turns, first)) for name, turns in times.items()}


def paired_ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median over rounds of one call's time over another's: what disturbs a round disturbs both.

    The ratio of their best times would compare the quietest moment of one with that of the other.

    >>> paired_ratio([1.0, 2.0, 9.0], [2.0, 4.0, 10.0])
    0.5
    """
    return median(ours / theirs for ours, theirs in zip(times, others, strict=True))


def _best_of_turn(call: Callable[[], object]) -> float:
    best, end = inf, perf_counter() + TURN
    while True:
        start = perf_counter()
        call()
        now = perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best
