"""Videos from images: folders of frames, and frames in memory."""

# H, W size of a frame

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.images import IMAGE_SUFFIXES, ImageLike, read_pixels, resized_image
from dnlnet.data.problems import BadFileError
from dnlnet.video.data.video import Video, VideoError, resized_size

FOLDER_RATE = 30.0  # default frames per second


class FrameList(Video):
    """Images as the frames of a video.

    Args:
        path: Name in error messages.
        images: At least one frame, each in a form that `read_pixels` accepts.
        rate: Frames per second.
    """

    def __init__(self, path: Path, images: Sequence[ImageLike], rate: float = FOLDER_RATE) -> None:
        if not 0 < rate < float("inf"):
            raise ValueError(f"the frame rate must be above 0, got {rate}")
        self.images, count = images, len(images)
        super().__init__(path, np.arange(count) / rate, count / rate)

    def _decode(self, wanted: list[int], short_side: int | None) -> list[NDArray[np.uint8]]:
        frames = [self._read(number) for number in wanted]
        size = resized_size(frames[0].shape[:2], short_side)
        return [resized_image(frame, size) for frame in frames]

    def count_decodable(self) -> int:
        """Read every image and count the readable ones; `notes` names the first unreadable one."""
        good = 0
        for number in range(len(self)):
            try:
                self._read(number)
                good += 1
            except VideoError as error:
                if good == number:  # the first one
                    self.notes.append(error.problem.text)
        return good

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _read(self, number: int) -> NDArray[np.uint8]:
        try:
            pixels = read_pixels(self.images[number])
        except BadFileError as error:
            raise VideoError(self.path, f"{error.problem.path.name} {error.problem.text}") from None
        self.decoded += 1
        return pixels


class FrameFolder(FrameList):
    """The images of a folder as a video, in the order of the numbers in their names: 2 before 10.

    Args:
        path: Folder.
        rate: Frames per second.
    """

    def __init__(self, path: Path, rate: float = FOLDER_RATE) -> None:
        images = sorted(filter(is_frame, path.iterdir()), key=_by_numbers)
        if not images:
            raise VideoError(path, f"is a folder without images ({', '.join(IMAGE_SUFFIXES)})")
        super().__init__(path, images, rate)


def is_frame(path: Path) -> bool:
    """Return whether a file has the suffix of an image and is not hidden."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Return a sort key in which digits count as numbers."""
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
