"""Open videos of any kind: files or folders of frames."""

from pathlib import Path

from dnlnet.data.files import file_fault
from dnlnet.video.data.frame_folder import FOLDER_RATE, FrameFolder, is_frame
from dnlnet.video.data.frames import Video, VideoError
from dnlnet.video.data.video_file import VideoFile

__all__ = ["VIDEO_SUFFIXES", "Video", "VideoError", "is_video", "open_video"]

VIDEO_SUFFIXES = (".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".ts")


def open_video(path: Path, *, threads: int = 1, folder_rate: float = FOLDER_RATE) -> Video:
    """Open a video file or a folder of frames; raises `VideoError` if it cannot be used.

    Args:
        path: the file or folder.
        threads: decoding threads per file; one by default, since several files are read in parallel.
        folder_rate: frames per second of a folder.

    >>> open_video(Path("/nowhere/a.mp4"))
    Traceback (most recent call last):
    dnlnet.video.data.frames.VideoError: /nowhere/a.mp4: no such file or folder
    """
    if path.is_dir():
        return FrameFolder(path, folder_rate)
    if fault := file_fault(path):
        raise VideoError(path, "no such file or folder" if fault == "no such file" else fault)
    return VideoFile(path, threads)


def is_video(path: Path) -> bool:
    """Whether this is a file with a video's suffix or a folder with pictures, and not hidden."""
    if path.name.startswith("."):
        return False
    return any(map(is_frame, path.iterdir())) if path.is_dir() else path.suffix.lower() in VIDEO_SUFFIXES
