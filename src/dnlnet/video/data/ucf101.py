"""UCF101 and subsets of it: classInd.txt, trainlist0N.txt and testlist0N.txt, with one folder of videos per class.

The lists are in ucfTrainTestlist or the root folder, the videos in UCF-101, videos or the root folder.

For cross-validation, `train1of3` and `test1of3` are the first of three folds of the videos of all lists. Clips of one
group, cut from the same recordings, are in the same fold. Names contain the group: v_<class>_g<group>_c<clip>.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from dnlnet.data.files import on_disk, text_lines
from dnlnet.data.labelled import inside
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, find_existing, named_classes

_CLASS = re.compile(r"(\d{1,5})\s+(\S.*)")
_VIDEO = re.compile(r"(?P<path>.*\.\w+)(?:\s+(?P<number>\d{1,5}))?")
_GROUP = re.compile(r".*_g(\d{1,5})_c\d{1,5}")
_NO_GROUP = "has no group in its name; folds expect names such as v_YoYo_g01_c01.avi"
_FOLD = re.compile(r"(train|test)(\d{1,3})of(\d{1,3})")


def ucf101(root: Path, split: str) -> LabelledVideos:
    """Open the videos of a list. A video's class is its folder; a number in the list must agree with it.

    Args:
        root: Folder of the data set.
        split: `train01` for trainlist01.txt, `test01` for testlist01.txt, and so on, or a part of a fold.

    >>> ucf101(Path("/nowhere"), "train01")
    Traceback (most recent call last):
    FileNotFoundError: /nowhere/classInd.txt: no such file
    """
    lists, videos = inside(root, "ucfTrainTestlist"), inside(root, "UCF-101", "videos")
    numbers = _class_numbers(lists / "classInd.txt")
    names = sorted(numbers, key=numbers.__getitem__)
    known = own_splits(root)
    fold = _FOLD.fullmatch(split)
    if known and split not in known and fold is None:
        raise unknown("split", split, known)
    read = [lists / f"{one[:-2]}list{one[-2:]}.txt" for one in (known if fold else [split])]
    lines = [(path, *numbered) for path in read for numbered in text_lines(path)]
    entries: list[VideoEntry] = []
    faults: list[Problem] = []
    for path, place, line in lines:
        found = _VIDEO.fullmatch(line)
        folder = Path(found["path"]).parent.name if found else ""
        if found is None or folder not in numbers:
            faults.append(Problem(path, f"line {place} is {line[:60]!r}; expected <a class of classInd.txt>/<video>"))
        elif found["number"] is not None and int(found["number"]) != numbers[folder]:
            text = f"has the class {found['number']}, but classInd.txt has {numbers[folder]} for {folder}"
            faults.append(Problem(path, f"line {place} {text}"))
        else:
            entries.append(VideoEntry(on_disk(videos / found["path"]), names.index(folder)))
    if fold is not None:
        entries = list(dict.fromkeys(entries))  # a video is in several lists
        faults += [Problem(one.path, _NO_GROUP) for one in entries if not _GROUP.fullmatch(one.path.stem)]
        if not faults:
            entries = _fold(entries, names, fold[1], int(fold[2]), int(fold[3]))
    return find_existing(f"ucf101 {split}", named_classes(names), entries, faults)


def fold_splits(fold: int, folds: int) -> tuple[str, str]:
    """Return the splits to train and to test on, for a fold counted from 1.

    >>> fold_splits(1, 3)
    ('train1of3', 'test1of3')
    """
    return f"train{fold}of{folds}", f"test{fold}of{folds}"


def _fold(entries: Sequence[VideoEntry], names: Sequence[str], part: str, fold: int, folds: int) -> list[VideoEntry]:
    """Return the videos of a fold to train or to test on.

    Large groups are assigned first, each to the fold with the fewest videos of its class, and then of all classes.
    """
    if not 1 <= fold <= folds:
        raise ValueError(f"{part}{fold}of{folds}: expected a fold of 1..{folds}")
    groups: defaultdict[tuple[int, int], list[VideoEntry]] = defaultdict(list)
    for entry in entries:
        found = _GROUP.fullmatch(entry.path.stem)
        assert found is not None
        groups[entry.label, int(found[1])].append(entry)
    for label, count in Counter(label for label, _ in groups).items():
        if count < folds:
            raise ValueError(f"{names[label]} has {count} groups of clips, too few for {folds} folds")
    of_class: Counter[tuple[int, int]] = Counter()
    of_all: Counter[int] = Counter()
    chosen: set[VideoEntry] = set()
    for (label, _), clips in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])):
        place = min(range(1, folds + 1), key=lambda k: (of_class[label, k], of_all[k]))
        of_class[label, place] += len(clips)
        of_all[place] += len(clips)
        if (place == fold) == (part == "test"):
            chosen.update(clips)
    return [entry for entry in entries if entry in chosen]


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
