"""Ctrl-C and SIGTERM as a wish to stop, to be granted at the next good moment."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """The signal that came, if one did."""

    received: int | None = None


def leave_to_parent(_: int = 0) -> None:
    """Ignore both signals, in a process that reads data: a terminal sends them to all, the parent decides.

    It takes the number of the reader, which `DataLoader` gives.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stop_requested() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one works as usual.

    >>> with stop_requested() as stop:
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
