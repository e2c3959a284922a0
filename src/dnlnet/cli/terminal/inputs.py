"""Models, images and videos given to a command."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from dnlnet.progress import Bars

if TYPE_CHECKING:
    from dnlnet.artifacts.model_file import ModelFile


def open_models(models: Sequence[str]) -> list["str | ModelFile"]:
    """Open the files of our models, and return names of transformers unchanged. Needs no torch, to fail early."""
    from dnlnet.artifacts.model_file import open_model
    from dnlnet.errors import require_package

    if any(model.startswith("transformers:") for model in models):
        require_package("transformers", "transformers")
    return [model if ":" in model else open_model(model) for model in models]


@dataclass(frozen=True)
class Inputs:
    """Local files and folders.

    Args:
        paths: All files and folders, in the given order.
        addresses: Web address of each downloaded file.
    """

    paths: Sequence[Path]
    addresses: Mapping[Path, str]

    def named(self, text: object) -> str:
        """Replace the paths of downloaded files in a message by their addresses.

        >>> Inputs([], {Path("/x/a.jpg"): "https://example.org/a.jpg"}).named("/x/a.jpg: is not an image")
        'https://example.org/a.jpg: is not an image'
        """
        message = str(text)
        for path, address in self.addresses.items():
            message = message.replace(str(path), address)
        return message

    def bars(self) -> Bars:
        """Return progress bars whose messages name downloaded files by their addresses."""
        return _NamedBars(self)


class _NamedBars(Bars):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self._inputs = inputs

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        super().say(self._inputs.named(text))


@contextmanager
def open_inputs(given: Sequence[str]) -> Iterator[Inputs]:
    """Download web addresses, and keep the files while the context is open."""
    from dnlnet.data.downloads import download, is_url

    for one in given:
        if not is_url(one) and not Path(one).exists():
            raise FileNotFoundError(f"{one}: no such file or folder")
    with TemporaryDirectory() as folder:
        paths, addresses = [], {}
        for number, one in enumerate(given):
            path = Path(one)
            if is_url(one):
                say(f"downloading {one}")
                path = download(one, Path(folder) / str(number))
                addresses[path] = one
            paths.append(path)
        inputs = Inputs(paths, addresses)
        try:
            yield inputs
        except (ValueError, OSError) as error:
            message = inputs.named(error)
            if message == str(error):
                raise
            raise ValueError(message) from None


def end_with(problems: Sequence[str], count: int) -> None:
    """List the inputs that failed, if any, and exit: with 2 if all `count` failed, else with 1."""
    for problem in problems:
        say(f"not done: {problem}")
    if problems:
        raise typer.Exit(2 if len(problems) == count else 1)


def say(text: str) -> None:
    """Print a line to standard error, with control characters in file names escaped."""
    from dnlnet.names import printable

    typer.echo(printable(text), err=True)
