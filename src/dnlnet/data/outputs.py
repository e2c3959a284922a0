"""How predictions become files, as far as all systems have it in common."""

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from dnlnet.data.images import read_image_file, several_images
from dnlnet.data.inputs import Inputs, find_pictures
from dnlnet.files import explain_write_errors

Targets = dict[str, Path]
Progress = Callable[[int, int], None]  # how much is done, of how much
_FOR_ALL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # errors of writing that do not end with a picture


class Outputs(ABC):
    """How a model's predictions become files."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the files depend on, beside the model."""

    @abstractmethod
    def targets(self, out: Path, name: Path) -> Targets:
        """The files of a picture, by what they are; the last one is written last."""

    def find(self, inputs: Sequence[Path], out: Path | None = None) -> Inputs:
        """What is to be predicted."""
        return find_pictures(inputs, out)

    def several(self, source: Any) -> list[Any] | None:
        """Those of a list or of a batch in memory; None if it is one."""
        return several_images(source)

    def read(self, path: Path) -> Any:
        """What the model looks at, from a file."""
        return read_image_file(path)

    @abstractmethod
    def predict(self, pixels: Any, progress: Progress) -> Any:
        """What the model finds."""

    def say(self, prediction: Any) -> str:
        """What to tell the user about a prediction; mostly nothing."""
        return ""

    def notes(self, prediction: Any) -> Sequence[str]:
        """What is wrong with a picture or video although it could be used."""
        return ()

    @abstractmethod
    def write(self, prediction: Any, targets: Targets) -> None:
        """Write the files, each whole or not at all."""

    def finish(self, out: Path) -> None:  # noqa: B027
        """Write what is about all pictures together, if there is such a file; called once, at the end."""


def writing_problem(error: OSError, targets: Collection[Path]) -> str:
    """Why the results of a picture could not be written; none of them stays.

    An error that the next picture would meet as well, such as a full disk, is raised.
    """
    for target in targets:
        with suppress(OSError):
            (rmtree if target.is_dir() else Path.unlink)(target)
    if error.errno in _FOR_ALL:
        with explain_write_errors(Path(error.filename or next(iter(targets)))):
            raise error
    return f"its results cannot be written: {error.strerror or error}"
