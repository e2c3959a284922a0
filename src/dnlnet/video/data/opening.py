"""Open videos: files, URLs, folders of frames, and frames in memory."""

# N videos, T frames, H, W size of a frame

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.downloads import downloaded, is_url
from dnlnet.data.files import file_fault
from dnlnet.data.images import IMAGE_SUFFIXES, ImageLike, read_pixels, resized_image
from dnlnet.data.problems import BadFileError
from dnlnet.video.data.video import Video, VideoError, resized_size
from dnlnet.video.data.video_file import VideoFile

if TYPE_CHECKING:
    from torch import Tensor

VideoLike = Union[Path, str, NDArray[Any], "Tensor", Sequence[Any]]
VIDEO_SUFFIXES = (".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".ts")
FOLDER_RATE = 30.0  # default frames per second of images


class FrameList(Video):
    """Images as the frames of a video.

    Args:
        path: Name in error messages.
        images: At least one frame, each in a form that `read_pixels` accepts.
        rate: Frames per second.
    """

    def __init__(self, path: Path, images: Sequence[ImageLike], rate: float) -> None:
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

    def _read(self, number: int) -> NDArray[np.uint8]:
        try:
            pixels = read_pixels(self.images[number])
        except BadFileError as error:
            raise VideoError(self.path, f"{error.problem.path.name} {error.problem.text}") from None
        self.decoded += 1
        return pixels


def is_frame(path: Path) -> bool:
    """Return whether a file has the suffix of an image and is not hidden."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def is_video(path: Path) -> bool:
    """Return whether this is a file with a video's suffix or a folder of images, and not hidden."""
    if path.name.startswith("."):
        return False
    return any(map(is_frame, path.iterdir())) if path.is_dir() else path.suffix.lower() in VIDEO_SUFFIXES


def open_video(path: Path, folder_rate: float = FOLDER_RATE) -> Video:
    """Open a video file, or a folder of frames in the order of the numbers in their names: 2 before 10.

    Raises `VideoError` if it cannot be used.

    Args:
        path: File or folder.
        folder_rate: Frames per second of a folder.

    >>> open_video(Path("/nowhere/a.mp4"))
    Traceback (most recent call last):
    dnlnet.video.data.video.VideoError: /nowhere/a.mp4: no such file or folder
    """
    if path.is_dir():
        images = sorted(filter(is_frame, path.iterdir()), key=_by_numbers)
        if not images:
            raise VideoError(path, f"is a folder without images ({', '.join(IMAGE_SUFFIXES)})")
        return FrameList(path, images, folder_rate)
    if fault := file_fault(path):
        raise VideoError(path, "no such file or folder" if fault == "no such file" else fault)
    return VideoFile(path)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Return a sort key in which digits count as numbers."""
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


@contextmanager
def open_any(source: VideoLike, rate: float = FOLDER_RATE) -> Iterator[Video]:
    """Open a video of any kind for the duration of a `with` block.

    Args:
        source: A file; a URL, which is downloaded; a folder of frames; or frames in memory: an array (T, H, W, 3), a
            tensor (T, H, W, 3) or (T, 3, H, W), or a list of images. Values are bytes or floats in 0..1.
        rate: Frames per second of a folder and of frames in memory.

    >>> with open_any(np.zeros((60, 4, 6, 3), np.uint8)) as video:
    ...     len(video), video.duration, video.size
    (60, 2.0, (4, 6))
    """
    if is_url(source):
        with downloaded(str(source)) as path, open_video(path) as video:
            yield video
    elif isinstance(source, Path | str):
        with open_video(Path(source), folder_rate=rate) as video:
            yield video
    else:
        yield FrameList(Path("frames"), _frames_in_memory(source), rate)


def several_videos(source: Any) -> list[Any] | None:
    """Return the videos of a list or of a batch (N, T, H, W, 3), or None if the source is one video.

    A list of images is one video.

    >>> several_videos(["a.mp4", "b.mp4"]), several_videos([Image.new("L", (3, 2))])
    (['a.mp4', 'b.mp4'], None)
    """
    if isinstance(source, list | tuple):
        return None if _is_frames(source) else list(source)
    return list(source) if getattr(source, "ndim", None) == 5 else None


def _is_frames(source: Sequence[Any]) -> bool:
    """Return whether a list holds images, not videos."""
    return len(source) > 0 and all(
        isinstance(one, Image.Image) or getattr(one, "ndim", None) in (2, 3) for one in source
    )


def _frames_in_memory(source: Any) -> Sequence[Any]:
    """Return the frames of a video in memory, each in a form that `read_pixels` accepts."""
    from torch import Tensor  # late: data sets are listed without it

    if isinstance(source, list | tuple) and _is_frames(source):
        return source
    if isinstance(source, Tensor) and source.ndim == 4:
        channels_first = source.shape[-1] not in (3, 4) and source.shape[1] in (1, 3)
        source = source if channels_first else source.detach().cpu().numpy()
    if isinstance(source, np.ndarray | Tensor) and source.ndim == 4 and len(source):
        return list(source)
    given = f"shape {tuple(source.shape)}" if isinstance(source, np.ndarray | Tensor) else type(source).__name__
    raise ValueError(
        "expected a video: a file, a URL, a folder of frames, an array or tensor (time, height, width, 3), or a list "
        f"of images; got {given}"
    )
