"""Data sets by name, with errors that explain what a folder lacks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import floor
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from dnlnet.data.classes import Classes
from dnlnet.data.files import composed
from dnlnet.data.fingerprint import Listed
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown


class Opened(Protocol):
    """Images or videos of one split, with their classes and files."""

    @property
    def name(self) -> str:
        """Name of the data set and the split, for messages."""
        ...

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """Problems found when the files were listed."""
        ...

    def files(self) -> Iterator[Listed]:
        """Yield the files in order, each with its labels for the fingerprint."""
        ...

    def __len__(self) -> int: ...


class Samples(Protocol):
    """Samples of opened data, for training or scoring."""

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        ...

    def files(self) -> Iterator[Listed]:
        """Yield the files of the samples, in order."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


AnyOpened = TypeVar("AnyOpened", bound=Opened)
PARTS = ("train", "val")  # splits of a folder without splits of its own
HOLDOUT = 0.2  # default share of such a folder that is held out as val


@dataclass(frozen=True)
class FlatPart:
    """Part of the files of a folder without splits, chosen by a hash of each file's name.

    Other files do not matter: a file that is added never moves another one from one part to the other.

    Args:
        root: Folder. Names are relative to it, so it may be moved.
        name: `train`, or `val` for the files that are held out.
        holdout: Share of the files that is held out, as an expected value.

    >>> parts = [FlatPart(Path("a"), name, 0.3) for name in PARTS]
    >>> [[number for number in range(10) if Path(f"a/{number}.jpg") in part] for part in parts]
    [[2, 3, 4, 6, 7, 8, 9], [0, 1, 5]]
    """

    root: Path
    name: str
    holdout: float
    _seen: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def __contains__(self, path: Path) -> bool:
        name = composed(path.relative_to(self.root).as_posix()).encode("utf-8", "surrogateescape")
        place = int.from_bytes(sha256(name).digest()[:8]) / 2**64  # evenly distributed in 0..1
        self._seen.append(place)
        return (place < self.holdout) == (self.name == PARTS[1])

    def require_files(self, holds: str) -> None:
        """Raise if all files are in the other part, with a share that gives each part some."""
        if any((place < self.holdout) == (self.name == PARTS[1]) for place in self._seen):
            return
        places = sorted(self._seen)
        low, high = floor(places[0] * 100 + 1) / 100, floor(places[-1] * 100) / 100
        advice = f"--holdout {low if self.name == PARTS[1] else high}"
        if not 0 < low <= high < 1:
            advice = f"more {holds}, or folders named {PARTS[0]} and {PARTS[1]}"
        raise ValueError(
            f"{self.root}: with a holdout of {self.holdout}, all {len(places)} {holds} would be in "
            f"{PARTS[self.name == PARTS[0]]} and none in {self.name}; use {advice}"
        )


@dataclass(frozen=True)
class Flat(Generic[AnyOpened]):
    """Layout of a folder without splits.

    Args:
        matches: Function that returns whether a folder has this layout.
        open: Function that opens a part of such a folder. Problems of all files belong to `train`.
        layout: Short description of the layout.
    """

    matches: Callable[[Path], bool]
    open: Callable[[Path, FlatPart], AnyOpened]
    layout: str


@dataclass(frozen=True)
class DataSet(Generic[AnyOpened]):
    """Data set that can be opened by name.

    Args:
        name: Name in recipes and commands.
        splits: Names of its splits; empty if they depend on the folder.
        function: Function that opens a split of a root folder.
        layout: Expected folders, on one line.
        classes: Classes, if they are fixed.
        class_count: Number of classes, if only the number is fixed.
        joined: Splits that consist of other splits.
        find_splits: Function that lists the splits of a folder, if they depend on it.
        holds: Name of its files in messages.
        quick: True if opening a split is fast; messages then list the splits that exist.
        signs: Glob patterns that identify its folder; empty if none do.
        package: Package that reads it, and the extra that installs the package.
        open_file: Function that opens a single file of this format, given the folder that its names are relative to.
        flat: Layout without splits, if it is supported.
        fold_splits: Function that names the training and test split of a fold, if related files stay together in it.
    """

    name: str
    splits: tuple[str, ...]
    function: Callable[[Path, str], AnyOpened]
    layout: str
    classes: Classes | None = None
    class_count: int | None = None
    joined: tuple[str, ...] = ()
    find_splits: Callable[[Path], Sequence[str]] = lambda _: ()
    holds: str = "images"
    quick: bool = True
    signs: tuple[str, ...] = ()
    package: tuple[str, str] | None = None
    open_file: Callable[[Path, Path], AnyOpened] | None = None
    flat: Flat[AnyOpened] | None = None
    fold_splits: Callable[[int, int], tuple[str, str]] | None = None

    def open(self, root: Path, split: str, holdout: float | None = None) -> AnyOpened:
        """Open a split. Errors say what the folder lacks, and suggest other splits and folders.

        A folder without splits has `train` and `val`, the share `holdout` of its files (by default, `HOLDOUT`).
        """
        self._require_folder(root)
        try:
            return self._opened(root, split, holdout)
        except FileNotFoundError as error:
            near = next((place for place in _nearby(root) if self._looks_right(place, split)), None)
            hint = f"; {near} looks right: give that folder" if near else ""
            raise FileNotFoundError(
                f"{error}{self._describe_other_splits(root, split)}; {self.name} expects {self.layout}{hint}"
            ) from None

    def open_all(self, root: Path) -> tuple[dict[str, AnyOpened], dict[str, str]]:
        """Open every split that exists, except joined ones. Also return the reason for each missing split."""
        self._require_folder(root)
        opened: dict[str, AnyOpened] = {}
        missing: dict[str, str] = {}
        for split in self.splits_of(root):
            if split not in self.joined:
                try:
                    opened[split] = self._opened(root, split)
                except FileNotFoundError as error:
                    missing[split] = str(error)
        if not opened:
            self.open(root, next(iter(missing)))  # raises an error with advice
        return opened, missing

    def is_flat(self, root: Path) -> bool:
        """Return whether a folder has files of this data set, but no splits."""
        return self.flat is not None and self.flat.matches(root)

    def splits_of(self, root: Path) -> Sequence[str]:
        """Return the splits that a folder should have."""
        return self.splits or (PARTS if self.is_flat(root) else self.find_splits(root))

    def has_signs(self, root: Path) -> bool:
        """Return whether a folder has the signs of this data set. For quick data sets, also search its subfolders."""
        places = ("", "*/") if self.quick else ("",)  # `recognises` opens it to be sure
        return self.is_flat(root) or (
            bool(self.signs) and any(all(any(root.glob(f"{place}{sign}")) for sign in self.signs) for place in places)
        )

    def has_most_signs(self, root: Path) -> bool:
        """Return whether a folder has most signs of this data set, and at least two."""
        found = sum(any(root.glob(sign)) for sign in self.signs)
        return self.is_flat(root) or (found > 1 and 2 * found > len(self.signs))

    def recognises(self, root: Path) -> bool:
        """Return whether a folder has the signs of this data set. For quick data sets, also check that it opens."""
        return self.has_signs(root) and (
            not self.quick or any(self._looks_right(root, one) for one in self.splits_of(root))
        )

    def _require_folder(self, root: Path) -> None:
        if not root.is_dir():
            kind = "is not a folder" if root.exists() else "no such folder"
            raise FileNotFoundError(f"{root}: {kind}; {self.name} expects {self.layout}")

    def _opened(self, root: Path, split: str, holdout: float | None = None) -> AnyOpened:
        if self.flat is not None and split in PARTS and self.flat.matches(root):
            part = FlatPart(root, split, HOLDOUT if holdout is None else holdout)
            opened = self.flat.open(root, part)
            if not opened.problems:
                part.require_files(self.holds)
        else:
            opened = self.function(root, split)
        if not len(opened) and not opened.problems:
            raise FileNotFoundError(f"{root}: has no {self.holds} of the split {split}")
        return opened

    def _describe_other_splits(self, root: Path, split: str) -> str:
        """Describe the other splits that exist, if any."""
        if not self.quick:
            return ""
        there = [one for one in self.splits_of(root) if one != split and self._looks_right(root, one)]
        return f" (existing splits: {', '.join(there)})" if there else ""

    def _looks_right(self, root: Path, split: str) -> bool:
        try:
            return len(self._opened(root, split)) > 0
        except (OSError, ValueError):
            return False


def find_data_set(rows: Mapping[str, DataSet[AnyOpened]], name: str) -> DataSet[AnyOpened]:
    """Return the data set of this name.

    >>> find_data_set({"camvid": DataSet("camvid", ("train",), lambda root, split: None, "train/*")}, "camvidd")
    Traceback (most recent call last):
    ValueError: unknown data set 'camvidd'; did you mean 'camvid'? known: camvid
    """
    if name not in rows:
        raise unknown("data set", name, rows)
    return rows[name]


def found_or_train(find: Callable[[Path], Sequence[str]]) -> Callable[[Path], Sequence[str]]:
    """Wrap a function that lists splits: without any, it returns `train`, and opening that says what is missing."""

    def splits(root: Path) -> Sequence[str]:
        try:
            return find(root) or ["train"]
        except FileNotFoundError:
            return ["train"]

    return splits


def _nearby(root: Path) -> Iterator[Path]:
    yield from (path for path in sorted(root.iterdir()) if path.is_dir())
    yield root.resolve().parent
