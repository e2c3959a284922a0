"""Data sets by name, with errors that explain what a folder lacks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from dnlnet.data.classes import Classes
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

    def open(self, root: Path, split: str) -> AnyOpened:
        """Open a split. Errors say what the folder lacks, and suggest other splits and folders."""
        self._require_folder(root)
        try:
            return self._opened(root, split)
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
        for split in self.splits or self.find_splits(root):
            if split not in self.joined:
                try:
                    opened[split] = self._opened(root, split)
                except FileNotFoundError as error:
                    missing[split] = str(error)
        if not opened:
            self.open(root, next(iter(missing)))  # raises an error with advice
        return opened, missing

    def has_signs(self, root: Path) -> bool:
        """Return whether a folder has the signs of this data set. For quick data sets, also search its subfolders."""
        places = ("", "*/") if self.quick else ("",)  # `recognises` opens it to be sure
        return bool(self.signs) and any(
            all(any(root.glob(f"{place}{sign}")) for sign in self.signs) for place in places
        )

    def recognises(self, root: Path) -> bool:
        """Return whether a folder has the signs of this data set. For quick data sets, also check that it opens."""
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

    def _describe_other_splits(self, root: Path, split: str) -> str:
        """Describe the other splits that exist, if any."""
        if not self.quick:
            return ""
        known = self.splits or self.find_splits(root)
        there = [one for one in known if one != split and self._looks_right(root, one)]
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
