"""Problem of a single file, and the error that carries it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """Problem of one file."""

    path: Path
    text: str

    def __str__(self) -> str:
        # A file name can contain bytes that are not text.
        return f"{self.path}: {self.text}".encode("utf-8", "backslashreplace").decode("utf-8")


class BadFileError(ValueError):
    """Error for a file that cannot be used, with the message of its `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def __reduce__(self) -> tuple[type["BadFileError"], tuple[Problem]]:
        return BadFileError, (self.problem,)  # lets DataLoader workers send it to the main process


def require_complete(name: str, images: int, problems: Sequence[Problem]) -> None:
    """Raise unless a data set has images and no problems.

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
