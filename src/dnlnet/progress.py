"""Progress of long work: a protocol for messages and counted steps, and its two implementations.

Library functions take `progress: Progress = SILENT`; the functions that `dnlnet` exports take `BARS`.
"""

import os
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from dnlnet.names import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINES_IN_A_FILE = 50  # a moving bar needs a terminal
_SECONDS_OF_A_SPEED = 600.0  # steps may take a minute, and the time left needs two of them
_NAME_WIDTH = len("evaluating")  # bars stay aligned when another one appears


class Tracker(Protocol):
    """Counted work in progress, used as a context manager."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count finished steps; `note` is shown beside the bar."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Progress(Protocol):
    """Observer of long work."""

    def say(self, text: str) -> None:
        """Show one message to the user."""
        ...

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Track `total` steps of work, beginning after step `start`.

        With a `unit`, such as "iteration", a log file gets a line every few steps.
        """
        ...


class Silent:
    """Observer and tracker that shows nothing."""

    def say(self, text: str) -> None:
        """Drop the message."""

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Track nothing."""
        return self

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


SILENT = Silent()


class Prefixed:
    """Observer that puts a name before each message and bar, and passes them on."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name

    def say(self, text: str) -> None:
        """Pass a message on."""
        self._progress.say(f"{self._name}: {text}")

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Track work under the longer name."""
        return self._progress.track(f"{self._name} {name}", total, start=start, unit=unit)


class Bars:
    """Progress bars in a terminal or notebook, lines in a log file; nothing outside the main process.

    Bars and messages go to standard error, so that results can be piped.
    """

    def __init__(self, console: "Console | None" = None) -> None:
        self._console = console
        self._bars: RichProgress | None = None
        self._open = 0

    @property
    def console(self) -> "Console":
        """Console that everything is printed to."""
        if self._console is None:
            from rich.console import Console

            quiet = os.environ.get("RANK", "0") != "0"
            notebook = Console(quiet=quiet)
            if not notebook.is_jupyter:
                self._console = Console(stderr=True, quiet=quiet)
            elif find_spec("ipywidgets") is not None:
                self._console = notebook
            else:  # rich's bars in notebooks need it; without it, they get the lines of a log file
                self._console = Console(force_jupyter=False, quiet=quiet)
        return self._console

    def say(self, text: str) -> None:
        """Print a message above the bars, with control characters in each line escaped."""
        lines = "\n".join(map(printable, text.split("\n")))
        self.console.print(lines, highlight=False, soft_wrap=not self.console.is_terminal, markup=False)

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Return a bar that appears with its context and disappears when it is full."""
        return _Bar(self, name, total, start, unit)

    def _enter(self) -> "RichProgress":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeRemainingColumn(),
                console=self.console,
                speed_estimate_period=_SECONDS_OF_A_SPEED,
            )
            self._bars.start()
        self._open += 1
        return self._bars

    def _exit(self) -> None:
        self._open -= 1
        if not self._open and self._bars is not None:
            if any(task.visible for task in self._bars.tasks):
                self._bars.stop()
            else:  # `Progress.stop` would print an empty line
                self._bars.live.transient = True
                self._bars.live.stop()
            self._bars = None


BARS = Bars()


class _Bar:
    """One bar of `Bars`."""

    def __init__(self, owner: Bars, name: str, total: int | None, start: int, unit: str | None) -> None:
        self._owner, self._name, self._total, self._done, self._unit = owner, name, total, start, unit
        self._bars: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars = self._owner._enter()
        self._task = self._bars.add_task(
            f"{printable(self._name):{_NAME_WIDTH}}", total=self._total, completed=self._done, note=""
        )
        return self

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count finished steps; `note` is shown beside the bar."""
        if self._bars is None or self._task is None:
            raise RuntimeError("use a tracker as a context manager")
        self._done += steps
        self._bars.update(self._task, completed=self._done, note=printable(note))
        if self._unit is not None and not self._owner.console.is_terminal:
            total = self._total or 0
            if self._done % max(1, total // _LINES_IN_A_FILE) == 0:
                self._owner.say(f"{self._unit} {self._done} of {total}: {note}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bars is None or self._task is None:
            return
        full = self._total is not None and self._done >= self._total
        if self._owner._open > 1 or not full or kind is not None:
            self._bars.update(self._task, visible=kind is None and full and self._owner._open == 1)
        self._owner._exit()
