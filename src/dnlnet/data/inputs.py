"""Inputs of a command: images or videos, given as files or in folders."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dnlnet.data.files import file_fault
from dnlnet.data.images import IMAGE_SUFFIXES
from dnlnet.data.problems import Problem

JOB_FILE = "predict.json"  # in every folder of predictions
RESULT_FOLDERS = ("labels", "colours", "overlay", "submission", "masks", "detections")  # beside the job file
_FIGURE_ENDINGS = (".pdf", ".npz", ".json")  # siblings of a figure of `dnlnet attend`

Wanted = Callable[[Path], bool]


@dataclass(frozen=True)
class Inputs:
    """Files found among the inputs of a command.

    Args:
        paths: Files by the name of their results: the path without suffix, relative to the input.
        problems: Files that cannot be read.
        left_out: Skipped paths, each with the reason.
    """

    paths: dict[Path, Path] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def find_images(inputs: Iterable[Path], out: Path | None = None) -> Inputs:
    """Find image files among the inputs and in folders (see `find_inputs`).

    >>> find_images([Path("/nowhere/a.png")])
    Traceback (most recent call last):
    FileNotFoundError: /nowhere/a.png: no such file or folder
    """
    return find_inputs(inputs, _is_image, f"images in it ({', '.join(IMAGE_SUFFIXES)})", out)


def find_inputs(inputs: Iterable[Path], wanted: Wanted, kind: str, out: Path | None = None) -> Inputs:
    """Find wanted files and folders among the inputs, and in folders given as inputs.

    Skips hidden files and folders, and the package's own results: the folder `out`, other folders of predictions, and
    figures of attention.

    Args:
        inputs: Wanted paths, and folders to search.
        wanted: Function that returns whether a path is wanted.
        kind: Name of the wanted files, for the error about a folder without any.
        out: Folder for the results.
    """
    found = Inputs()
    for given in inputs:
        if not given.exists():
            raise FileNotFoundError(f"{given}: no such file or folder")
        folder = given.is_dir() and not wanted(given)
        paths = list(_Search(wanted, out, found).through(given)) if folder else [given]
        if not paths:
            reasons = [*map(str, found.problems), *found.left_out]
            raise FileNotFoundError("; ".join([f"{given}: no {kind}", *reasons]))
        for path in paths:
            problem = _problem(path)
            if problem is not None:
                found.problems.append(problem)
                continue
            name = (path.relative_to(given) if folder else Path(path.name)).with_suffix("")
            other = found.paths.setdefault(name, path)
            if os.path.realpath(other) != os.path.realpath(path):
                raise ValueError(f"{other} and {path} would be written to the same name; do them one after the other")
    return found


@dataclass(frozen=True)
class _Search:
    """Search of a folder and its subfolders. It does not follow links to folders, because they may form a cycle."""

    wanted: Wanted
    out: Path | None
    found: Inputs

    def through(self, folder: Path) -> Iterator[Path]:
        """Yield wanted paths in order of their names."""
        try:
            with os.scandir(folder) as listed:
                entries = sorted((entry for entry in listed if entry.name[0] != "."), key=lambda entry: entry.name)
        except OSError as error:
            self.found.problems.append(Problem(folder, f"cannot be searched: {error.strerror}"))
            return
        names = {entry.name for entry in entries}
        results = sorted(names & set(RESULT_FOLDERS)) if JOB_FILE in names else []
        figures = _figures(names)
        if results:
            self._leave_out(folder, f"the predictions in it ({', '.join(results)})")
        if figures:
            self._leave_out(folder, f"{len(figures)} figures of attention in it")
        for entry in entries:
            path = folder / entry.name
            if not _is_folder(entry):
                if self.wanted(path) and entry.name not in figures:
                    yield path
            elif entry.is_symlink():
                self._leave_out(path, "a link to a folder; name it to have it searched")
            elif self._is_out(path):
                self._leave_out(path, "the folder for the results")
            elif entry.name not in results:
                if self._is_wanted_folder(path):
                    yield path
                yield from self.through(path)

    def _is_wanted_folder(self, path: Path) -> bool:
        """Return whether the folder itself is wanted, for example as the frames of a video."""
        try:
            return self.wanted(path) and not _figures(os.listdir(path))
        except OSError:
            return False  # the search reports the error

    def _is_out(self, path: Path) -> bool:
        return self.out is not None and os.path.realpath(path) == os.path.realpath(self.out)

    def _leave_out(self, path: Path, what: str) -> None:
        self.found.left_out.append(f"{path}: {what}")


def _figures(names: Collection[str]) -> set[str]:
    """Return the PNG files written by `dnlnet attend`, recognised by their .pdf, .npz and .json siblings."""
    return {
        name
        for name in names
        if name.endswith(".png") and all(f"{name[:-4]}{ending}" in names for ending in _FIGURE_ENDINGS)
    }


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a dangling link


def _problem(path: Path) -> Problem | None:
    """Return the problem of a path unless it is a file or a folder."""
    fault = None if path.is_dir() else file_fault(path)
    return None if fault is None else Problem(path, fault)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir()
