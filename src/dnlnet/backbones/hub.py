"""Access to the Hugging Face hub that falls back to its cache without a long wait."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

_PATIENCE = 5  # seconds to wait for a connection


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Use only the cache if the hub cannot be reached; its library would retry for a minute before failing."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def reason(error: Exception) -> str:
    """Return a short reason for a failed download.

    >>> reason(LocalEntryNotFoundError("An error happened while trying to ...")), reason(OSError())
    ('the hub cannot be reached, and its cache has no copy', 'OSError')
    """
    if isinstance(error, LocalEntryNotFoundError):
        return "the hub cannot be reached, and its cache has no copy"
    return shorten(str(error), 200, placeholder=" ...") or type(error).__name__


def _is_reachable(address: str) -> bool:
    """Return whether a connection can be opened. Behind a proxy, assume that it can.

    >>> _is_reachable("http://127.0.0.1:9") or bool(getproxies())
    False
    """
    if getproxies():
        return True
    url = urlsplit(address)
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True
