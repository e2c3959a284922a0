"""Videos as they are given in Python: files, addresses, folders of frames, and frames in memory."""

# N videos, T frames, H, W size of a frame

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dnlnet.data.downloads import downloaded, is_url
from dnlnet.video.data.frame_folder import FOLDER_RATE, FrameList
from dnlnet.video.data.video import Video, open_video

VideoLike = Path | str | NDArray[Any] | Tensor | Sequence[Any]
_IN_MEMORY = Path("frames")  # what errors call a video that is no file


@contextmanager
def open_any(source: VideoLike, rate: float = FOLDER_RATE) -> Iterator[Video]:
    """A video, whatever it is given as, for as long as the block lasts.

    Args:
        source: a file; a URL, which is downloaded; a folder of frames; frames as an array (T, H, W, 3), as a tensor
            (T, H, W, 3) or (T, 3, H, W), of bytes or of numbers in 0..1, or as a list of pictures.
        rate: frames per second of a folder and of frames in memory.

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
        yield FrameList(_IN_MEMORY, _frames(source), rate)


def several_videos(source: Any) -> list[Any] | None:
    """The videos of a list or of a batch (N, T, H, W, 3); None if it is one video.

    A list of pictures is one video, of these frames.

    >>> several_videos(["a.mp4", "b.mp4"]), several_videos([Image.new("L", (3, 2))])
    (['a.mp4', 'b.mp4'], None)
    """
    if isinstance(source, list | tuple):
        return None if source and all(map(_is_frame_in_memory, source)) else list(source)
    return list(source) if isinstance(source, np.ndarray | Tensor) and source.ndim == 5 else None


def _is_frame_in_memory(one: Any) -> bool:
    return isinstance(one, Image.Image) or (isinstance(one, np.ndarray | Tensor) and one.ndim in (2, 3))


def _frames(source: Any) -> Sequence[Any]:
    """The frames of a video in memory, each as `read_pixels` takes it."""
    if isinstance(source, list | tuple) and source and all(map(_is_frame_in_memory, source)):
        return source
    if isinstance(source, Tensor) and source.ndim == 4:
        channels_first = source.shape[-1] not in (3, 4) and source.shape[1] in (1, 3)
        source = source if channels_first else source.detach().cpu().numpy()
    if isinstance(source, np.ndarray | Tensor) and source.ndim == 4 and len(source):
        return list(source)
    given = f"shape {tuple(source.shape)}" if isinstance(source, np.ndarray | Tensor) else type(source).__name__
    raise ValueError(
        "a video is a file, a URL, a folder of frames, an array or tensor of frames (time, height, width, 3), or a "
        f"list of pictures; got {given}"
    )
