"""Batches from a loader, and errors of its worker processes in the words they had there."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader


def read(loader: "DataLoader[Any]") -> Iterator[Any]:
    """The batches of a loader; an error in a worker process is raised here with its own message alone.

    PyTorch puts the worker's whole traceback into the message, which hides the one sentence that matters.
    """
    try:
        yield from loader
    except (ValueError, OSError, RuntimeError) as error:
        text = str(error)
        if "in DataLoader worker process" not in text:
            raise
        kind, _, message = text.strip().splitlines()[-1].partition(": ")
        raise (OSError if "OSError" in kind or "FileNotFound" in kind else ValueError)(message or kind) from error
