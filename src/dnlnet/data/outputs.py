"""Base class of the writers of prediction files."""

import errno
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from dnlnet.data.images import read_image_file, several_images
from dnlnet.data.inputs import Inputs, find_images
from dnlnet.files import explain_write_errors
from dnlnet.progress import Progress

Targets = dict[str, Path]
_FOR_ALL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # errors that would also occur for every further file


class Outputs(ABC):
    """Writer of a model's predictions."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings, besides the model, that affect the files."""

    @abstractmethod
    def targets(self, out: Path, name: Path) -> Targets:
        """Return the result files of an image by kind. The last of them must be written last."""

    def find(self, inputs: Sequence[Path], out: Path | None = None) -> Inputs:
        """Find the inputs to predict."""
        return find_images(inputs, out)

    def several(self, source: Any) -> list[Any] | None:
        """Return the items of a list or batch in memory, or None for a single item."""
        return several_images(source)

    def read(self, path: Path) -> Any:
        """Read an input of the model from a file."""
        return read_image_file(path)

    @abstractmethod
    def predict(self, pixels: Any, progress: Progress) -> Any:
        """Return the prediction for one input."""

    def say(self, prediction: Any) -> str:
        """Return a message about a prediction. Default: no message."""
        return ""

    def notes(self, prediction: Any) -> Sequence[str]:
        """Return warnings about an input that could still be used."""
        return ()

    @abstractmethod
    def write(self, prediction: Any, targets: Targets) -> None:
        """Write the files atomically."""

    def finish(self, out: Path) -> None:  # noqa: B027
        """Write the files that summarise all inputs. Called once, at the end."""


def writing_problem(error: OSError, targets: Collection[Path]) -> str:
    """Return the reason why the results of an image could not be written, and remove them.

    Raises the error instead if it would also occur for the next image, such as a full disk.
    """
    for target in targets:
        with suppress(OSError):
            (rmtree if target.is_dir() else Path.unlink)(target)
    if error.errno in _FOR_ALL:
        with explain_write_errors(Path(error.filename or next(iter(targets)))):
            raise error
    return f"its results cannot be written: {error.strerror or error}"
