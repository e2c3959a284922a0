"""Check a data set of videos by decoding each once."""

# K classes

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dnlnet.data.check import (
    Contents,
    WidthHeight,
    collecting,
    count_of,
    counts_or_none,
    most_frequent_first,
    read_all,
    sizes_and_problems,
)
from dnlnet.data.problems import Problem
from dnlnet.progress import SILENT, Progress
from dnlnet.video.data.opening import open_video
from dnlnet.video.data.videos import LabelledVideos, VideoEntry


@dataclass(frozen=True)
class VideoReport:
    """Contents of a split, and its problems.

    Args:
        name: Name of the data set and split.
        videos: Number of videos.
        class_names: Names of the K classes.
        class_videos: Number of videos per class.
        seconds: Duration of each readable video.
        rates: Frames per second of each readable video.
        sizes: (width, height) -> number of videos, most frequent first.
        problems: Problems, with paths.
    """

    name: str
    videos: int
    class_names: Sequence[str]
    class_videos: Sequence[int]
    seconds: Sequence[float]
    rates: Sequence[float]
    sizes: Mapping[WidthHeight, int]
    problems: Sequence[Problem]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON types.

        >>> report = VideoReport("mine", 1, ["run"], [1], [2.5], [25.0], {(4, 2): 1}, [])
        >>> report.to_json()["classes"], report.to_json()["seconds"]
        ([{'name': 'run', 'videos': 1}], {'least': 2.5, 'median': 2.5, 'most': 2.5})
        """
        rows = zip(self.class_names, self.class_videos, strict=True)
        return {
            "name": self.name,
            "videos": self.videos,
            "readable": len(self.seconds),
            "classes": [{"name": name, "videos": count} for name, count in rows],
            "seconds": summarise(self.seconds),
            "frames_per_second": summarise(self.rates),
            **sizes_and_problems(self.sizes, self.problems, of="videos"),
        }

    def contents(self) -> Contents:
        """Return the table of the classes."""
        lines = [
            f"{name}: {values['least']:.1f} to {values['most']:.1f}, median {values['median']:.1f}"
            for name, values in (("seconds", summarise(self.seconds)), ("frames per second", summarise(self.rates)))
            if values is not None
        ]
        columns = {"videos": counts_or_none(self.class_videos)}
        title, caption = count_of(self.videos, "video"), f"{len(self.seconds)} can be read"
        return Contents(title, self.class_videos, columns, caption, lines)


def summarise(values: Sequence[float]) -> dict[str, float] | None:
    """Return minimum, median and maximum of the values, or None if there are none.

    >>> summarise([3.0, 1.0, 2.0]), summarise([])
    ({'least': 1.0, 'median': 2.0, 'most': 3.0}, None)
    """
    return {"least": min(values), "median": median(values), "most": max(values)} if values else None


def check_videos(videos: LabelledVideos, progress: Progress = SILENT) -> VideoReport:
    """Decode all frames of all videos. Problems go into the report and do not stop the check.

    Args:
        videos: Videos to check.
        progress: Progress observer.

    >>> from pathlib import Path
    >>> from dnlnet.video.data.videos import named_classes
    >>> check_videos(LabelledVideos("mine", named_classes(["run"]), [VideoEntry(Path("/a.mp4"), 0)])).problems
    (Problem(path=PosixPath('/a.mp4'), text='no such file or folder'),)
    """
    found = list(read_all(_read, videos.videos, videos.name, progress))
    counts = Counter(entry.label for entry in videos.videos)
    readable = [measures for measures, _ in found if measures is not None]
    return VideoReport(
        name=videos.name,
        videos=len(videos),
        class_names=tuple(videos.classes.names),
        class_videos=tuple(counts[label] for label in range(len(videos.classes))),
        seconds=tuple(seconds for _, seconds, _ in readable),
        rates=tuple(rate for *_, rate in readable),
        sizes=most_frequent_first(Counter(size for size, *_ in readable)),
        problems=(*videos.problems, *(problem for _, problems in found for problem in problems)),
    )


def _read(entry: VideoEntry) -> tuple[tuple[WidthHeight, float, float] | None, list[Problem]]:
    """Return size, duration and frame rate of a video, None if unreadable, and its problems."""
    problems: list[Problem] = []
    with collecting(problems), open_video(entry.path) as video:
        height, width = video.size
        good = video.count_decodable()
        if good < len(video):
            problems.append(Problem(entry.path, f"{len(video) - good} of {len(video)} frames cannot be decoded"))
        problems += video.problems
        return ((width, height), video.duration, video.rate), problems
    return None, problems
