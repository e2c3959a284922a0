"""Timing of several calls in interleaved rounds."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

TURN = 0.05  # seconds per call and round
DEVICES = ("cpu", "cuda", "mps", "xpu")


def find_device(name: str) -> str:
    """Return a device name, such as cpu or cuda:1, after checking it with a tensor.

    >>> find_device("cpu")
    'cpu'
    """
    if name.split(":")[0] in DEVICES:
        try:
            torch.empty(1, device=name)
            return name
        except (RuntimeError, AssertionError):  # AssertionError: PyTorch was built without the device
            pass
    raise ValueError(
        f"device {name[:60]!r} cannot be used here; expected one of {', '.join(DEVICES)} that PyTorch finds"
    )


def time_rounds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call in each round.

    Rounds spread disturbances over all calls. Every round shuffles the calls, because the previous call determines
    the state of the caches: a call takes a few per cent longer after a large multiply than after a similar call.
    Short calls are repeated within a round, and the best time counts.

    >>> [len(times) for times in time_rounds({"nothing": lambda: None, "zero": lambda: 0}, rounds=3).values()]
    [3, 3]
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    random = Random(0)
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            times[name].append(_best_time(calls[name]))
    return times


class ComparedTime(NamedTuple):
    """Best seconds of a call, and the median over rounds of the ratio of its time to that of the first call."""

    seconds: float
    ratio: float


def compare_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, ComparedTime]:
    """Return the time of each call, in seconds and relative to the first call.

    >>> compare_times({"nothing": lambda: None, "zero": lambda: 0}, rounds=2)["nothing"].ratio
    1.0
    """
    times = time_rounds(calls, rounds)
    first = next(iter(times.values()))
    return {name: ComparedTime(min(seconds), paired_ratio(seconds, first)) for name, seconds in times.items()}


def paired_ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of two calls' times.

    A disturbed round affects both calls. A ratio of their best times would compare different moments.

    >>> paired_ratio([1.0, 2.0, 9.0], [2.0, 4.0, 10.0])
    0.5
    """
    return median(ours / theirs for ours, theirs in zip(times, others, strict=True))


def _best_time(call: Callable[[], object]) -> float:
    best, end = inf, perf_counter() + TURN
    while True:
        start = perf_counter()
        call()
        now = perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best
