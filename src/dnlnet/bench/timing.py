"""Time several calls in turn."""

from collections.abc import Callable, Mapping
from time import perf_counter

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


def best_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best seconds of each call, by name, over `rounds` rounds in which the calls take turns.

    On a busy machine the minimum is the cost of the call itself; taking turns spreads disturbances over all calls. A
    short call is repeated during its turn: the first one finds the caches full of what the call before it needed.

    >>> list(best_times({"nothing": lambda: None}, rounds=2))
    ['nothing']
    """
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            end = perf_counter() + TURN
            while True:
                start = perf_counter()
                call()
                now = perf_counter()
                best[name] = min(best[name], now - start)
                if now >= end:
                    break
    return best
