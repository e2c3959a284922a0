"""Problems of files: what is wrong with each, and the error that carries it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """Something wrong with one file."""

    path: Path
    text: str

    def __str__(self) -> str:
        # A name on disk can hold bytes that are no text, which no terminal takes.
        return f"{self.path}: {self.text}".encode("utf-8", "backslashreplace").decode("utf-8")


class BadFileError(ValueError):
    """A file of a data set that cannot be used; its message is that of the `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def __reduce__(self) -> tuple[type["BadFileError"], tuple[Problem]]:
        return BadFileError, (self.problem,)  # workers of a DataLoader send it to the parent


def require_complete(name: str, images: int, problems: Sequence[Problem]) -> None:
    """Fail unless a data set has images and nothing is missing.

    >>> require_complete("mine train", 1, [Problem(Path("a.jpg"), "no such file")])
    Traceback (most recent call last):
    ValueError: a.jpg: no such file
    """
    if problems:
        count = len(problems)
        more = f" (and {count - 1} more problems: dnlnet data check shows them)" if count > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
    if not images:
        raise ValueError(f"no images found for {name}; dnlnet data list shows the expected folders")
