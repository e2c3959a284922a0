"""Which frames make a clip, and where in a video clips begin."""

# T frames of a clip; n clips of a video

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

_ROUNDING = 1e-6  # seconds; without it a whole number of rounds ends just before the end instead of at the beginning


@dataclass(frozen=True)
class Clip:
    """So many frames, so far apart.

    Args:
        count: frames of the clip, T.
        stride: from one to the next, in frames of a video of this `rate`.
        rate: frames a second that videos are looked at with, whatever their own rate is.

    >>> clip = Clip(count=4, stride=15, rate=30)
    >>> clip.times(start=1.0, duration=9.0)
    array([1. , 1.5, 2. , 2.5])
    >>> clip.times(start=0.0, duration=1.2)  # too short: it begins again
    array([0. , 0.5, 1. , 0.3])
    """

    count: int = 8
    stride: int = 8
    rate: float = 30.0

    def __post_init__(self) -> None:
        if self.count < 1 or self.stride < 1:
            raise ValueError(f"a clip needs a count and a stride of at least 1, got {self.count} and {self.stride}")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"the rate of a clip must be above 0, got {self.rate}")

    @property
    def length(self) -> float:
        """Seconds from the beginning of the first frame to the end of the last one."""
        return ((self.count - 1) * self.stride + 1) / self.rate

    def times(self, start: float, duration: float) -> NDArray[np.float64]:
        """When its frames are, in seconds of a video of this duration; one that is too short begins again, (T,)."""
        _require_duration(duration)
        times = start + np.arange(self.count) * (self.stride / self.rate)
        again = np.maximum((times + _ROUNDING) % duration - _ROUNDING, 0.0)
        return np.where(times < duration, times, again)

    def random_start(self, rng: Generator, duration: float) -> float:
        """A place from which the whole clip fits into a video; 0 if it fits nowhere. It takes one number of `rng`."""
        _require_duration(duration)
        return float(rng.random()) * max(0.0, duration - self.length)

    def spread_starts(self, n: int, duration: float) -> NDArray[np.float64]:
        """n places, equally far apart, from the first to the last at which the clip fits; the middle if n is 1, (n,).

        >>> Clip(count=1, rate=10).spread_starts(3, duration=2.1)
        array([0., 1., 2.])
        """
        if n < 1:
            raise ValueError(f"at least 1 clip is needed, got {n}")
        _require_duration(duration)
        latest = max(0.0, duration - self.length)
        return np.linspace(0, latest, n) if n > 1 else np.array([latest / 2])


def _require_duration(duration: float) -> None:
    if not 0 < duration < float("inf"):
        raise ValueError(f"the duration of a video must be above 0 seconds, got {duration}")
