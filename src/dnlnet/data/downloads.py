"""Downloads of files from URLs."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from dnlnet.data.problems import BadFileError
from dnlnet.files import make_folder

_PATIENCE = 30  # seconds without an answer
_MOST_BYTES = 256 * 2**20
_LONGEST_NAME = 60  # characters


def is_url(source: object) -> bool:
    """Return whether a source is the URL of a file to download.

    >>> is_url("https://example.org/a.jpg"), is_url("a.jpg"), is_url(Path("https:/a"))
    (True, False, False)
    """
    return isinstance(source, str) and source.startswith(("https://", "http://"))


@contextmanager
def downloaded(url: str) -> Iterator[Path]:
    """Download a file for the duration of a block. Errors while reading it name the URL."""
    with TemporaryDirectory() as folder:
        path = download(url, Path(folder))
        try:
            yield path
        except BadFileError as error:
            raise ValueError(f"{url}: {error.problem.text}") from None


def download(url: str, folder: Path) -> Path:
    """Download a file into a folder, under its own name."""
    try:
        with urlopen(Request(url, headers={"User-Agent": "dnlnet"}), timeout=_PATIENCE) as answer:
            content = answer.read(_MOST_BYTES + 1)
    except (OSError, ValueError, HTTPException) as error:
        raise FileNotFoundError(f"{url}: cannot be downloaded ({_reason(error)}); give a file instead") from None
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{url}: is larger than {_MOST_BYTES // 2**20} MB; download it, and give the file")
    make_folder(folder)
    path = folder / _name(url)
    path.write_bytes(content)
    return path


def _reason(error: Exception) -> str:
    """Return the reason of a failed download, without the library's wrapping.

    >>> from urllib.error import URLError
    >>> _reason(URLError(ConnectionRefusedError(111, "Connection refused"))), _reason(TimeoutError("timed out"))
    ('Connection refused', 'no answer for 30 seconds')
    """
    why = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
    if isinstance(why, TimeoutError):
        return f"no answer for {_PATIENCE} seconds"
    return str(getattr(why, "strerror", None) or why).partition("\n")[0]


def _name(url: str) -> str:
    """Return a file name for a URL.

    >>> _name("https://example.org/my%20cat.jpg?size=3"), _name("https://example.org/")
    ('my cat.jpg', 'download')
    """
    name = unquote(urlsplit(url).path).rsplit("/", 1)[-1].replace("\0", "")[-_LONGEST_NAME:]
    return "download" if name in ("", ".", "..") else name
