"""Base class of videos.

A frame is shown from its own time stamp to that of the next, so a variable frame rate needs no special care.
"""

# F frames of the video; T requested times; H, W size of a frame

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.images import HeightWidth, size_fault
from dnlnet.data.problems import BadFileError, Problem

Frames = NDArray[np.uint8]  # (T, H, W, 3)

_ROUNDING = 0.001  # seconds; some containers round time stamps to milliseconds


class VideoError(BadFileError):
    """A video that cannot be used."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(Problem(path, text))

    def __reduce__(self) -> tuple[type["VideoError"], tuple[Path, str]]:  # type: ignore[override]
        return VideoError, (self.problem.path, self.problem.text)  # workers of a DataLoader send it to the parent


class Video(AbstractContextManager["Video"]):
    """An open video. A `with` block closes it.

    Attributes:
        path: File or folder.
        times: Start of each frame in seconds, counted from the first frame, (F,).
        duration: Seconds, including the last frame.
        notes: Defects that do not prevent its use, such as truncation.
        decoded: Number of frames decoded so far.
    """

    def __init__(self, path: Path, times: NDArray[np.float64], duration: float) -> None:
        self.path, self.times, self.duration = path, times, duration
        self.notes: list[str] = []
        self.decoded = 0

    def __len__(self) -> int:
        return len(self.times)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Notes, with the path of the video."""
        return tuple(Problem(self.path, note) for note in self.notes)

    @property
    def rate(self) -> float:
        """Average frames per second."""
        return len(self) / self.duration

    def frame_numbers(self, times: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of the frame shown at each time, (T,)."""
        numbers = np.searchsorted(self.times, np.asarray(times, dtype=np.float64) + _ROUNDING, side="right") - 1
        return numbers.clip(0, len(self) - 1)

    def frames(self, times: Sequence[float] | NDArray[np.float64], short_side: int | None = None) -> Frames:
        """Return the frames shown at these times, (T, H, W, 3), in any order. Repeated ones are decoded once.

        Args:
            times: Seconds from the first frame. After the end, the last frame is shown.
            short_side: Length of the shorter side after resizing; None does not resize.
        """
        if not len(times):
            raise ValueError(f"{self.path}: no times requested; pass at least one")
        wanted, places = np.unique(self.frame_numbers(times), return_inverse=True)
        try:
            frames = self._decode(wanted.tolist(), short_side)
        except BadFileError:
            raise
        except ValueError as error:
            raise VideoError(self.path, str(error)) from None
        return np.stack(frames)[places]

    @property
    def size(self) -> HeightWidth:
        """Height and width as displayed."""
        height, width, _ = self.frames([0.0]).shape[1:]
        return height, width

    @abstractmethod
    def _decode(self, wanted: list[int], short_side: int | None) -> list[NDArray[np.uint8]]:
        """Decode the frames with these ascending numbers, (H, W, 3) each, all of one size."""

    @abstractmethod
    def count_decodable(self) -> int:
        """Decode every frame and count the decodable ones."""

    def close(self) -> None:
        """Close the file, if there is one."""


def resized_size(size: tuple[int, ...], short_side: int | None) -> HeightWidth:
    """Return the height and width after resizing the shorter side.

    >>> resized_size((240, 320), 256), resized_size((240, 320), None)
    ((256, 341), (240, 320))
    >>> resized_size((1, 4000), 256)
    Traceback (most recent call last):
    ValueError: is 1 x 4000 (height x width), too long for a shorter side of 256
    """
    height, width = size
    if short_side is None:
        return height, width
    scale = short_side / min(height, width)
    resized = round(height * scale), round(width * scale)
    if size_fault(resized):
        raise ValueError(f"is {height} x {width} (height x width), too long for a shorter side of {short_side}")
    return resized
