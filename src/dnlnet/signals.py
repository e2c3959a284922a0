"""Handling of Ctrl-C, SIGTERM and SIGHUP: a request to stop at the next safe point, or an exit that cleans up.

A signal that is ignored when a command starts stays ignored, as with `nohup`.
"""

import os
import signal
import stat
import sys
import threading
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopSignal(SystemExit):
    """Exit of a command that a signal stops, with code 128 + n."""


Handler = Callable[[int, FrameType | None], None]


@dataclass
class StopRequest:
    """Received signal, if any."""

    received: int | None = None


@dataclass
class _Hold:
    """Number of open `hold_stop_signals` blocks, and the signal received meanwhile."""

    depth: int = 0
    received: int | None = None


_hold = _Hold()


def handle_stop_signals(handler: Handler) -> None:
    """Call the handler on stop signals from now on."""
    for number in _usual():
        signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """Ignore stop signals. For workers: a terminal signals every process, and the parent decides."""
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Record stop signals instead of ending the process; a second one acts as usual.

    >>> with catch_stop_signals() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.received == signal.SIGTERM
    True
    """
    request, usual = StopRequest(), _usual()

    def note(number: int, _: FrameType | None) -> None:
        request.received = number
        _leave_closed_terminal(number)
        signal.signal(number, usual[number])

    with _handling(usual, note):
        yield request


@contextmanager
def exit_on_stop_signals() -> Iterator[None]:
    """Raise `StopSignal` on the first stop signal, so that context managers clean up; only Ctrl-C interrupts them.

    >>> with exit_on_stop_signals():
    ...     signal.raise_signal(signal.SIGTERM)
    Traceback (most recent call last):
    dnlnet.signals.StopSignal: 143
    """
    usual, report = _usual(), sys.unraisablehook
    request = StopRequest()

    def leave(number: int, _: FrameType | None) -> None:
        if _hold.depth:
            _hold.received = number
            return
        request.received = number
        for each, handler in usual.items():
            signal.signal(each, handler if each == signal.SIGINT else signal.SIG_IGN)
        _leave_closed_terminal(number)
        raise StopSignal(128 + number)

    def repeat(lost: "sys.UnraisableHookArgs") -> None:
        """Raise an exit again that was lost in the deletion of an object."""
        if request.received is None or not isinstance(lost.exc_value, StopSignal):
            report(lost)
            return
        signal.signal(request.received, leave)
        threading.Timer(0.01, interrupt_main, [request.received]).start()

    sys.unraisablehook = repeat
    try:
        with _handling(usual, leave):
            yield
    except Exception:
        if request.received is None:
            raise
        raise StopSignal(128 + request.received) from None  # a library replaced the exit by its own error
    finally:
        sys.unraisablehook = report


@contextmanager
def hold_stop_signals() -> Iterator[None]:
    """Delay the exit of `exit_on_stop_signals` to the end of the block.

    >>> with exit_on_stop_signals():
    ...     with hold_stop_signals():
    ...         signal.raise_signal(signal.SIGTERM)
    ...         print("done")
    Traceback (most recent call last):
    dnlnet.signals.StopSignal: 143
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals only interrupt the main thread
        return
    _hold.depth += 1
    try:
        yield
    finally:
        _hold.depth -= 1
        if not _hold.depth and _hold.received is not None:
            number, _hold.received = _hold.received, None
            signal.raise_signal(number)


def _usual() -> dict[int, Any]:
    """Return the present handlers of the stop signals that are not ignored; only the main thread may set others."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in _NUMBERS}
    return {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}


@contextmanager
def _handling(usual: dict[int, Any], handler: Handler) -> Iterator[None]:
    handle_stop_signals(handler)
    try:
        yield
    finally:
        for number, before in usual.items():
            signal.signal(number, before)


def _leave_closed_terminal(number: int) -> None:
    """Discard further output to a terminal that is gone, as after most SIGHUPs."""
    if number != getattr(signal, "SIGHUP", None):
        return
    for stream in (1, 2):
        with suppress(OSError):  # it may be closed
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
