"""Times of the frames of a clip, and starts of clips in a video."""

# T frames of a clip; n clips of a video

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

_ROUNDING = 1e-6  # seconds; a time that rounds to just before the end of the video belongs to the next repeat


@dataclass(frozen=True)
class Clip:
    """Temporal sampling of a clip.

    Args:
        count: Number of frames, T.
        stride: Distance between them, in frames at this `rate`.
        rate: Frames per second at which videos are sampled, whatever their own rate.

    >>> clip = Clip(count=4, stride=15, rate=30)
    >>> clip.times(start=1.0, duration=9.0)
    array([1. , 1.5, 2. , 2.5])
    >>> clip.times(start=0.0, duration=1.2)  # too short: the video repeats
    array([0. , 0.5, 1. , 0.3])
    """

    count: int = 8
    stride: int = 8
    rate: float = 30.0

    def __post_init__(self) -> None:
        if self.count < 1 or self.stride < 1:
            raise ValueError(f"count and stride of a clip must be at least 1, got {self.count} and {self.stride}")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"the rate of a clip must be above 0, got {self.rate}")

    @property
    def length(self) -> float:
        """Seconds from the start of the first frame to the end of the last."""
        return ((self.count - 1) * self.stride + 1) / self.rate

    def times(self, start: float, duration: float) -> NDArray[np.float64]:
        """Return the times of its frames in seconds, (T,). A video that is too short is repeated."""
        _require_duration(duration)
        times = start + np.arange(self.count) * (self.stride / self.rate)
        again = np.maximum((times + _ROUNDING) % duration - _ROUNDING, 0.0)
        return np.where(times < duration, times, again)

    def random_start(self, rng: Generator, duration: float) -> float:
        """Draw a start at which the whole clip fits, or 0 if it does not fit. Always takes one number from `rng`."""
        _require_duration(duration)
        return float(rng.random()) * max(0.0, duration - self.length)

    def spread_starts(self, n: int, duration: float) -> NDArray[np.float64]:
        """Return n evenly spaced starts, (n,), over the range in which the clip fits; its middle if n is 1.

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
