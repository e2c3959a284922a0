"""Frames as videos: lists of pictures, and folders of them."""

# H, W size of a picture

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.labelled import IMAGE_SUFFIXES, BadFileError
from dnlnet.data.pictures import PictureLike, read_pixels, resized_picture
from dnlnet.video.data.video import Video, VideoError, resized_size

FOLDER_RATE = 30.0  # default frames per second


class FrameList(Video):
    """Pictures as a video.

    Args:
        path: what errors call it.
        pictures: its frames, each as `read_pixels` takes it; one at least.
        rate: frames per second.
    """

    def __init__(self, path: Path, pictures: Sequence[PictureLike], rate: float = FOLDER_RATE) -> None:
        if not 0 < rate < float("inf"):
            raise ValueError(f"the rate of frames must be above 0, got {rate}")
        self.pictures, count = pictures, len(pictures)
        super().__init__(path, np.arange(count) / rate, count / rate)

    def _pictures(self, wanted: list[int], short_side: int | None) -> list[NDArray[np.uint8]]:
        pictures = [self._read(number) for number in wanted]
        size = resized_size(pictures[0].shape[:2], short_side)
        return [resized_picture(picture, size) for picture in pictures]

    def count_decodable(self) -> int:
        """Read every picture and count those that are readable; `notes` names the first that is not."""
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
            picture = read_pixels(self.pictures[number])
        except BadFileError as error:
            raise VideoError(self.path, f"{error.problem.path.name} {error.problem.text}") from None
        self.decoded += 1
        return picture


class FrameFolder(FrameList):
    """A folder of pictures as a video, in the order of the numbers in their names.

    Args:
        path: the folder.
        rate: frames per second.
    """

    def __init__(self, path: Path, rate: float = FOLDER_RATE) -> None:
        pictures = frame_files(path)
        if not pictures:
            raise VideoError(path, f"is a folder without pictures ({', '.join(IMAGE_SUFFIXES)})")
        super().__init__(path, pictures, rate)


def frame_files(folder: Path) -> list[Path]:
    """The pictures in a folder, in the order of the numbers in their names: 2 before 10."""
    return sorted((path for path in folder.iterdir() if is_frame(path)), key=_by_numbers)


def is_frame(path: Path) -> bool:
    """Whether a file is a picture, judged by its suffix, and not hidden."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """A sort key in which digits count as numbers."""
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
