"""Data sets by name, and how to open one with an error that helps when its folder is not as expected."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.problems import Problem
from dnlnet.errors import unknown


class Opened(Protocol):
    """The images or videos of one split, which know their classes and their files."""

    @property
    def name(self) -> str:
        """Of the data set and the split, for messages."""
        ...

    @property
    def classes(self) -> Classes:
        """What the labels mean."""
        ...

    @property
    def problems(self) -> Sequence[Problem]:
        """All that was found wrong when the files were listed."""
        ...

    def files(self) -> Iterator[Listed]:
        """The files in order, with what is known of each from elsewhere."""
        ...

    def __len__(self) -> int: ...


class Samples(Protocol):
    """What is drawn from opened data, to train on or to score."""

    @property
    def classes(self) -> Classes:
        """What the labels mean."""
        ...

    def files(self) -> Iterator[Listed]:
        """The files that the samples are read from, in order."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


AnyOpened = TypeVar("AnyOpened", bound=Opened)


@dataclass(frozen=True)
class DataSet(Generic[AnyOpened]):
    """A row of a system's catalogue.

    Args:
        name: as users write it.
        splits: the names of its splits; empty if the folder itself decides.
        function: from the root folder and a split to the images or videos.
        layout: the folders it expects, in one line.
        classes: what they are, if that is fixed.
        class_count: how many there are, if that alone is fixed.
        joined: those of the splits that consist of others.
        find_splits: lists them where the folder itself decides.
        holds: what its files are called in messages.
        quick: opening a split is quick, so that a message may say which of them are there.
        signs: patterns of what its folder has, by which it is told from others; none if it cannot be told.
        package: a package that reading it needs, and the extra that has it.
        open_file: opens a single file of this format, and a folder that its names are relative to, where that exists.
    """

    name: str
    splits: tuple[str, ...]
    function: Callable[[Path, str], AnyOpened]
    layout: str
    classes: Classes | None = None
    class_count: int | None = None
    joined: tuple[str, ...] = ()
    find_splits: Callable[[Path], Sequence[str]] = lambda _: ()
    holds: str = "pictures"
    quick: bool = True
    signs: tuple[str, ...] = ()
    package: tuple[str, str] | None = None
    open_file: Callable[[Path, Path], AnyOpened] | None = None

    def open(self, root: Path, split: str) -> AnyOpened:
        """One split; an error says what the folder lacks, which splits it has, and which folder looks right."""
        self._require_folder(root)
        try:
            return self._opened(root, split)
        except FileNotFoundError as error:
            near = next((place for place in _nearby(root) if self._looks_right(place, split)), None)
            hint = f"; {near} looks right: give that folder" if near else ""
            raise FileNotFoundError(
                f"{error}{self._others(root, split)}; {self.name} expects {self.layout}{hint}"
            ) from None

    def open_all(self, root: Path) -> tuple[dict[str, AnyOpened], dict[str, str]]:
        """Every split that is there, without those joined from others; and for each one that is not, why."""
        self._require_folder(root)
        opened: dict[str, AnyOpened] = {}
        missing: dict[str, str] = {}
        for split in self.splits or self.find_splits(root):
            if split not in self.joined:
                try:
                    opened[split] = self._opened(root, split)
                except FileNotFoundError as error:
                    missing[split] = str(error)
        if not opened:
            self.open(root, next(iter(missing)))  # raises, with its advice
        return opened, missing

    def has_signs(self, root: Path) -> bool:
        """Whether a folder has the names by which this data set is told from others, also inside a folder of it."""
        places = ("", "*/") if self.quick else ("",)  # what is quick to open is tried as well: see `recognises`
        return bool(self.signs) and any(
            all(any(root.glob(f"{place}{sign}")) for sign in self.signs) for place in places
        )

    def recognises(self, root: Path) -> bool:
        """Whether a folder has the signs of this data set and, where that is quick, can be opened as one."""
        splits = self.splits or self.find_splits(root)
        return self.has_signs(root) and (not self.quick or any(self._looks_right(root, one) for one in splits))

    def _require_folder(self, root: Path) -> None:
        if not root.is_dir():
            kind = "is not a folder" if root.exists() else "no such folder"
            raise FileNotFoundError(f"{root}: {kind}; {self.name} expects {self.layout}")

    def _opened(self, root: Path, split: str) -> AnyOpened:
        opened = self.function(root, split)
        if not len(opened) and not opened.problems:
            raise FileNotFoundError(f"{root}: has no {self.holds} of the split {split}")
        return opened

    def _others(self, root: Path, split: str) -> str:
        """The splits that are there, in words, if any is."""
        if not self.quick:
            return ""
        known = self.splits or self.find_splits(root)
        there = [one for one in known if one != split and self._looks_right(root, one)]
        return f" (splits that are there: {', '.join(there)})" if there else ""

    def _looks_right(self, root: Path, split: str) -> bool:
        try:
            return len(self._opened(root, split)) > 0
        except (OSError, ValueError):
            return False


def find_data_set(rows: Mapping[str, DataSet[AnyOpened]], name: str) -> DataSet[AnyOpened]:
    """The data set of this name.

    >>> find_data_set({"camvid": DataSet("camvid", ("train",), lambda root, split: None, "train/*")}, "camvidd")
    Traceback (most recent call last):
    ValueError: unknown data set 'camvidd'; did you mean 'camvid'? known: camvid
    """
    if name not in rows:
        raise unknown("data set", name, rows)
    return rows[name]


def found_or_train(find: Callable[[Path], Sequence[str]]) -> Callable[[Path], Sequence[str]]:
    """A function that lists the splits of a folder, or names `train` where it has none: opening that says why."""

    def splits(root: Path) -> Sequence[str]:
        try:
            return find(root) or ["train"]
        except FileNotFoundError:
            return ["train"]

    return splits


def _nearby(root: Path) -> Iterator[Path]:
    yield from (path for path in sorted(root.iterdir()) if path.is_dir())
    yield root.resolve().parent
