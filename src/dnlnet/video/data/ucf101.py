"""UCF101 and subsets of it: classInd.txt, trainlist0N.txt and testlist0N.txt, with one folder of videos per class.

The lists are in ucfTrainTestlist or the root folder, the videos in UCF-101, videos or the root folder.
"""

import re
from pathlib import Path

from dnlnet.data.files import on_disk, text_lines
from dnlnet.data.labelled import inside
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, find_existing, named_classes

_CLASS = re.compile(r"(\d{1,5})\s+(\S.*)")
_VIDEO = re.compile(r"(?P<path>.*\.\w+)(?:\s+(?P<number>\d{1,5}))?")


def ucf101(root: Path, split: str) -> LabelledVideos:
    """Open the videos of a list. A video's class is its folder; a number in the list must agree with it.

    Args:
        root: Folder of the data set.
        split: `train01` for trainlist01.txt, `test01` for testlist01.txt, and so on.

    >>> ucf101(Path("/nowhere"), "train01")
    Traceback (most recent call last):
    FileNotFoundError: /nowhere/classInd.txt: no such file
    """
    lists, videos = inside(root, "ucfTrainTestlist"), inside(root, "UCF-101", "videos")
    numbers = _class_numbers(lists / "classInd.txt")
    names = sorted(numbers, key=numbers.__getitem__)
    known = own_splits(root)
    if known and split not in known:
        raise unknown("split", split, known)
    path = lists / f"{split[:-2]}list{split[-2:]}.txt"
    entries: list[VideoEntry] = []
    faults: list[Problem] = []
    for place, line in text_lines(path):
        found = _VIDEO.fullmatch(line)
        folder = Path(found["path"]).parent.name if found else ""
        if found is None or folder not in numbers:
            faults.append(Problem(path, f"line {place} is {line[:60]!r}; expected <a class of classInd.txt>/<video>"))
        elif found["number"] is not None and int(found["number"]) != numbers[folder]:
            text = f"has the class {found['number']}, but classInd.txt has {numbers[folder]} for {folder}"
            faults.append(Problem(path, f"line {place} {text}"))
        else:
            entries.append(VideoEntry(on_disk(videos / found["path"]), names.index(folder)))
    return find_existing(f"ucf101 {split}", named_classes(names), entries, faults)


def own_splits(root: Path) -> list[str]:
    """Return the splits that have lists, training splits first.

    >>> own_splits(Path("/nowhere"))
    []
    """
    lists = inside(root, "ucfTrainTestlist")
    kinds = [sorted(lists.glob(f"{kind}list[0-9][0-9].txt")) for kind in ("train", "test")]
    return [path.stem.replace("list", "") for paths in kinds for path in paths]


def _class_numbers(path: Path) -> dict[str, int]:
    """Return name -> number, counted from 0 or 1 without gaps."""
    numbers: dict[str, int] = {}
    for place, line in text_lines(path):
        found = _CLASS.fullmatch(line)
        if found is None:
            raise ValueError(f"{path}: line {place} is {line[:60]!r}; expected a number and a name")
        if found[2] in numbers:
            raise ValueError(f"{path}: line {place} names {found[2]} again; each class needs one line")
        numbers[found[2]] = int(found[1])
    given = sorted(numbers.values())
    if not given or given != list(range(given[0], given[0] + len(given))) or given[0] > 1:
        raise ValueError(f"{path}: expected the numbers 0.. or 1.., each once, got {given[:8]}")
    return numbers
