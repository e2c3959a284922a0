"""Videos with one class each.

A data set is a function from a folder and a split to `LabelledVideos`. Videos are opened only when needed.
"""

# K classes

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dnlnet.data.classes import Classes, is_name, spread_colours
from dnlnet.data.fingerprint import Listed
from dnlnet.data.problems import Problem, require_complete
from dnlnet.errors import shown


@dataclass(frozen=True)
class VideoEntry:
    """A video file, or a folder of frames, and its class 0..K - 1."""

    path: Path
    label: int


@dataclass(frozen=True)
class LabelledVideos:
    """The videos of one split of a data set.

    Args:
        name: Name of the data set and split, for messages.
        classes: Classes of the labels 0..K - 1.
        videos: Existing videos, in fixed order.
        faults: Errors in the lists of videos, which must be fixed before use.
        missing: Videos that are listed but do not exist, which is common for videos from the web. They are skipped.

    >>> gone = Problem(Path("b.mp4"), "no such file")
    >>> videos = LabelledVideos("mine", named_classes(["run"]), [VideoEntry(Path("a.mp4"), 0)], missing=[gone])
    >>> len(videos.require_usable()), videos.problems
    (1, (Problem(path=PosixPath('b.mp4'), text='no such file'),))
    """

    name: str
    classes: Classes
    videos: Sequence[VideoEntry]
    faults: Sequence[Problem] = ()
    missing: Sequence[Problem] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.videos)

    def files(self) -> Iterator[Listed]:
        """Yield the files in order, each with its class."""
        for entry in self.videos:
            yield entry.path, entry.label

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All faults and missing videos."""
        return (*self.faults, *self.missing)

    def require_usable(self) -> "LabelledVideos":
        """Return itself. Raises if there are no videos or the lists have faults."""
        if not self.faults and not self.videos:
            if not self.missing:
                raise ValueError(f"no videos found for {self.name}; dnlnet data list shows the expected folders")
            example = f"such as {self.missing[0].path}; dnlnet data check shows all"
            raise ValueError(f"none of the {len(self.missing)} listed videos of {self.name} exists, {example}")
        require_complete(self.name, len(self), self.faults)
        return self


def named_classes(names: Sequence[str]) -> Classes:
    """Return classes with these names, and colours for figures.

    >>> named_classes(["run", "jump"]).names
    ('run', 'jump')
    >>> named_classes(["run", "run"])
    Traceback (most recent call last):
    ValueError: 2 classes have the name 'run'; each needs its own
    """
    for name, count in Counter(names).items():
        if not is_name(name):
            raise ValueError(f"a class has the name {shown(name)}; expected text")
        if count > 1:
            raise ValueError(f"{count} classes have the name {shown(name)}; each needs its own")
    return Classes(tuple(names), spread_colours(len(names)))


def find_existing(
    name: str, classes: Classes, entries: Sequence[VideoEntry], faults: Sequence[Problem] = ()
) -> LabelledVideos:
    """Sort the entries into videos that exist and missing ones."""
    existing: list[VideoEntry] = []
    missing: list[Problem] = []
    for entry in entries:
        if entry.path.exists():
            existing.append(entry)
        else:
            missing.append(Problem(entry.path, "no such file or folder"))
    return LabelledVideos(name, classes, tuple(existing), tuple(faults), tuple(missing))
