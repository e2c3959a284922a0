"""Progress that records events for tests."""

from collections.abc import Callable
from typing import Any


class Recorder:
    """Record messages and steps; call `after` with the number of finished steps of each `name`."""

    def __init__(self, after: Callable[[int], object] | None = None, name: str = "training") -> None:
        self.said: list[str] = []
        self.steps: list[tuple[str, int, int | None, str]] = []  # name, done, total, note
        self._after, self._name = after, name

    def say(self, text: str) -> None:
        self.said.append(text)

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> "_Tracker":
        return _Tracker(self, name, total, start)

    def done(self, name: str) -> list[int]:
        """Return the counts after each step."""
        return [done for named, done, *_ in self.steps if named == name]

    def step(self, name: str, done: int, total: int | None, note: str) -> None:
        self.steps.append((name, done, total, note))
        if self._after is not None and name == self._name:
            self._after(done)


class _Tracker:
    def __init__(self, owner: Recorder, name: str, total: int | None, done: int) -> None:
        self._owner, self._name, self._total, self._done = owner, name, total, done

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._done += steps
        self._owner.step(self._name, self._done, self._total, note)

    def __enter__(self) -> "_Tracker":
        return self

    def __exit__(self, *_: Any) -> None:
        pass
