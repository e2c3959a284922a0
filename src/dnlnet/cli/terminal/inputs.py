"""What commands take as pictures and videos: files, folders, and addresses, whose files are downloaded first."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dnlnet.progress import Bars


@dataclass(frozen=True)
class Inputs:
    """Files and folders of this machine.

    Args:
        paths: of all of them, in order.
        addresses: where the downloaded ones come from, by path.
    """

    paths: Sequence[Path]
    addresses: Mapping[Path, str]

    def named(self, text: object) -> str:
        """A text in which a downloaded file goes by its address.

        >>> Inputs([], {Path("/x/a.jpg"): "https://example.org/a.jpg"}).named("/x/a.jpg: is not a picture")
        'https://example.org/a.jpg: is not a picture'
        """
        said = str(text)
        for path, address in self.addresses.items():
            said = said.replace(str(path), address)
        return said

    def bars(self) -> Bars:
        """Return progress bars whose messages name downloaded files by their address."""
        return _NamedBars(self)


class _NamedBars(Bars):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self._inputs = inputs

    def say(self, text: str) -> None:
        """Print a line in which names of files are text."""
        from dnlnet.data.names import printable

        super().say(printable(self._inputs.named(text)))


@contextmanager
def open_inputs(given: Sequence[str]) -> Iterator[Inputs]:
    """The inputs of a command, for as long as the block lasts; one that is not there is an error."""
    from dnlnet.cli.terminal.problems import say
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
            said = inputs.named(error)
            if said == str(error):
                raise
            raise ValueError(said) from None
