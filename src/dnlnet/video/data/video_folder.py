"""Your own videos: <split>/<class>/<video>, where a video is a file or a folder of frames."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dnlnet.data.catalog import PARTS, FlatPart
from dnlnet.data.files import composed, on_disk
from dnlnet.data.images import IMAGE_SUFFIXES
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown
from dnlnet.video.data.opening import is_video
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, named_classes

_SPLITS = ("train", "training", "val", "valid", "validation", "test")  # usual names, not of classes


def video_folder(root: Path, split: str) -> LabelledVideos:
    """Open the videos of a split. The classes are the folder names of all splits, in alphabetical order.

    Args:
        root: Folder that contains the splits.
        split: Name of a folder in it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     for name in ("train/run/a.mp4", "train/jump/b.mp4", "val/run/c.mp4"):
    ...         (Path(root) / name).parent.mkdir(parents=True)
    ...         (Path(root) / name).touch()
    ...     video_folder(Path(root), "val").classes.names
    ('jump', 'run')
    """
    known = own_splits(root)
    if composed(split) not in known:
        raise unknown("split", split, known)
    names = sorted({composed(path.name) for other in known for path in _folders(on_disk(root / other))})
    return _open(on_disk(root / split), split, names)


def is_flat(root: Path) -> bool:
    """Return whether the folder contains class folders with video files, and no splits."""
    folders = _folders(root) if root.is_dir() else []
    classes = [path for path in folders if any(is_video(file) and file.is_file() for file in path.iterdir())]
    return len(classes) > 1 and not any(
        composed(path.name) in _SPLITS or any(map(_has_videos, _folders(path))) for path in folders
    )


def open_flat(root: Path, part: FlatPart) -> LabelledVideos:
    """Open a part of the videos of a folder without splits: `<class>/<video>`."""
    every = _open(root, part.name, sorted(composed(path.name) for path in _folders(root) if _has_videos(path)))
    videos = tuple(entry for entry in every.videos if entry.path in part)
    return replace(every, videos=videos, missing=every.missing if part.name == PARTS[0] else ())


def _open(root: Path, split: str, names: Sequence[str]) -> LabelledVideos:
    """Open the videos in the class folders of a folder."""
    entries = [
        VideoEntry(path, names.index(composed(folder.name)))
        for folder in _folders(root)
        if composed(folder.name) in names
        for path in sorted(folder.iterdir())
    ]
    videos = tuple(entry for entry in entries if is_video(entry.path))
    empty = [entry.path for entry in entries if _is_folder(entry.path) and not is_video(entry.path)]
    missing = tuple(Problem(path, "is a folder without images") for path in empty)
    return LabelledVideos(f"video_folder {split}", named_classes(names), videos, missing=missing)


def own_splits(root: Path) -> list[str]:
    """Return the names of the folders that contain folders of videos, sorted.

    >>> own_splits(Path("/nowhere"))
    Traceback (most recent call last):
    FileNotFoundError: /nowhere: no such folder
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    splits = [composed(path.name) for path in _folders(root) if any(map(_has_videos, _folders(path)))]
    if not splits:
        raise FileNotFoundError(f"{root}: has no videos in folders of folders, such as train/<class>/a.mp4")
    return splits


def _has_videos(folder: Path) -> bool:
    paths = list(folder.iterdir())
    if any(path.suffix.lower() in IMAGE_SUFFIXES for path in paths):
        return any(is_video(path) and path.is_file() for path in paths)  # folders among images are no videos
    return any(map(is_video, paths))


def _folders(path: Path) -> list[Path]:
    return sorted(inner for inner in path.iterdir() if _is_folder(inner))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")
