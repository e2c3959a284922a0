"""Kinetics, and videos listed in its format: {train,val,test}.csv with a path and a label per line.

A space, a tab or a comma separates the two. Relative paths start at the folder of the lists. An optional
classes.txt has the names of the classes, one per line, in the order of the labels.
"""

import re
from pathlib import Path

from dnlnet.data.classes import Classes
from dnlnet.data.files import on_disk, text_lines
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, find_existing, named_classes

SPLITS = ("train", "val", "test")
CLASSES_FILE = "classes.txt"

# The path may contain spaces and commas: the label follows the last of them.
_LINE = re.compile(r"""(?P<quote>["']?)(?P<path>.*[^\s,])(?P=quote)\s*[\s,]\s*(?P<label>\d{1,5})""")


def kinetics(root: Path, split: str) -> LabelledVideos:
    """Open the videos listed in <split>.csv.

    Args:
        root: Folder of the lists.
        split: train, val or test.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     _ = (Path(root) / "val.csv").write_text("a b.mp4 1")
    ...     videos = kinetics(Path(root), "val")
    >>> videos.classes.names, videos.missing[0].path.name
    (('class 0', 'class 1'), 'a b.mp4')
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    entries, faults = _entries(root / f"{split}.csv")
    classes = _classes(root)
    last = len(classes) - 1
    faults += [
        Problem(root / f"{split}.csv", f"{entry.path.name} has the label {entry.label}; {CLASSES_FILE} has 0..{last}")
        for entry in entries
        if entry.label > last
    ]
    return find_existing(f"kinetics {split}", classes, [entry for entry in entries if entry.label <= last], faults)


def _entries(path: Path) -> tuple[list[VideoEntry], list[Problem]]:
    entries: list[VideoEntry] = []
    faults: list[Problem] = []
    seen: dict[Path, int] = {}
    for number, line in text_lines(path):
        found = _LINE.fullmatch(line)
        if found is None:
            faults.append(Problem(path, f"line {number} is {line[:60]!r}; expected a path and a label of 0..99999"))
            continue
        video = on_disk(path.parent / found["path"])
        if video in seen:
            faults.append(Problem(path, f"line {number} names {video.name} again, after line {seen[video]}"))
            continue
        seen[video] = number
        entries.append(VideoEntry(video, int(found["label"])))
    return entries, faults


def _classes(root: Path) -> Classes:
    """Return the classes in classes.txt, or else as many as all lists together use, so all splits agree."""
    path = root / CLASSES_FILE
    if path.exists():
        names = [line for _, line in text_lines(path)]
        try:
            return named_classes(names)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    lists = [root / f"{split}.csv" for split in SPLITS]
    labels = [entry.label for path in lists if path.is_file() for entry in _entries(path)[0]]
    return named_classes([f"class {label}" for label in range(max(labels, default=-1) + 1)])
