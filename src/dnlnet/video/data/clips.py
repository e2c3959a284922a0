"""Times of the frames of a clip, and starts of clips in a video."""

# T frames of a clip; n clips of a video

import math
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
        aligned: Start clips at multiples of the distance between their frames, so that clips share frames.

    >>> clip = Clip(count=4, stride=15, rate=30)
    >>> clip.times(start=1.0, duration=9.0)
    array([1. , 1.5, 2. , 2.5])
    >>> clip.times(start=0.0, duration=1.2)  # too short: the video repeats
    array([0. , 0.5, 1. , 0.3])
    >>> Clip(count=4, stride=15, rate=30, aligned=True).times(start=0.0, duration=1.2)
    array([0. , 0.5, 1. , 0. ])
    """

    count: int = 8
    stride: int = 8
    rate: float = 30.0
    aligned: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 or self.stride < 1:
            raise ValueError(f"count and stride of a clip must be at least 1, got {self.count} and {self.stride}")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"the rate of a clip must be above 0, got {self.rate}")

    @property
    def step(self) -> float:
        """Seconds from one frame to the next."""
        return self.stride / self.rate

    @property
    def length(self) -> float:
        """Seconds from the start of the first frame to the end of the last."""
        return ((self.count - 1) * self.stride + 1) / self.rate

    def times(self, start: float, duration: float) -> NDArray[np.float64]:
        """Return the times of its frames in seconds, (T,). A video that is too short is repeated."""
        _require_duration(duration)
        if self.aligned:
            numbers = (round(start / self.step) + np.arange(self.count)) % self._shared(duration)
            return numbers.astype(np.float64) * self.step
        times = start + np.arange(self.count) * self.step
        again = np.maximum((times + _ROUNDING) % duration - _ROUNDING, 0.0)
        return np.where(times < duration, times, again)

    def shared_times(self, duration: float) -> NDArray[np.float64]:
        """Return the times of all frames that aligned clips may use.

        >>> Clip(stride=15, rate=30, aligned=True).shared_times(1.2)
        array([0. , 0.5, 1. ])
        """
        _require_duration(duration)
        return np.arange(self._shared(duration), dtype=np.float64) * self.step

    def _shared(self, duration: float) -> int:
        return max(1, math.ceil((duration - _ROUNDING) / self.step))

    def random_start(self, rng: Generator, duration: float) -> float:
        """Draw a start at which the whole clip fits, or 0 if it does not fit. Always takes one number from `rng`."""
        _require_duration(duration)
        place = float(rng.random())
        if self.aligned:
            return math.floor(place * (self._latest(duration) + 1)) * self.step
        return place * max(0.0, duration - self.length)

    def _latest(self, duration: float) -> int:
        """Return the number of the last shared frame at which an aligned clip can start."""
        return max(0, self._shared(duration) - self.count)

    def spread_starts(self, n: int, duration: float) -> NDArray[np.float64]:
        """Return n evenly spaced starts, (n,), over the range in which the clip fits; its middle if n is 1.

        >>> Clip(count=1, rate=10).spread_starts(3, duration=2.1)
        array([0., 1., 2.])
        """
        if n < 1:
            raise ValueError(f"at least 1 clip is needed, got {n}")
        _require_duration(duration)
        if self.aligned:
            last = self._latest(duration)
            numbers: NDArray[np.float64] = np.floor(np.linspace(0, last, n) if n > 1 else np.array([last / 2]))
            return numbers * self.step
        latest = max(0.0, duration - self.length)
        return np.linspace(0, latest, n) if n > 1 else np.array([latest / 2])


def _require_duration(duration: float) -> None:
    if not 0 < duration < float("inf"):
        raise ValueError(f"the duration of a video must be above 0 seconds, got {duration}")
