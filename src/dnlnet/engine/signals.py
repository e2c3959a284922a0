"""Ctrl-C and SIGTERM as a request to stop at the next safe point."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """The signal received, if any."""

    received: int | None = None


def ignore_stop_signals(_: int = 0) -> None:
    """Ignore both signals in a worker: a terminal sends them to every process, and the parent decides.

    The argument is the worker's number, which `DataLoader` passes.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of ending the process; a second one acts as usual.

    >>> with catch_stop_signals() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.received == signal.SIGTERM
    True
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _: FrameType | None) -> None:
        request.received = number
        signal.signal(number, usual[signal.Signals(number)])

    for number in usual:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
