"""Batches from a loader, and errors of its worker processes in the words they had there."""

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from dnlnet.engine.signals import leave_to_parent
from dnlnet.engine.task import Data


def read(
    data: Data,
    workers: int,
    *,
    sampler: Iterable[Any] | None = None,
    batch_sampler: Iterable[Any] | None = None,
) -> Generator[Any, None, None]:
    """The batches of a data set in the order of a `sampler` or a `batch_sampler`, read by worker processes.

    The workers leave signals to this process, and no random number is taken from the run's generators. An error in a
    worker is raised here with its own message alone: PyTorch puts the worker's whole traceback into the message,
    which hides the one sentence that matters. Whoever does not read to the end has to close this, for the workers,
    who leave signals alone, to end.
    """
    loader: DataLoader[Any] = DataLoader(
        data,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        worker_init_fn=leave_to_parent,
        sampler=sampler,
        batch_sampler=batch_sampler,
        collate_fn=getattr(data, "collate", None),  # data whose samples differ in size says what a batch of them is
    )
    batches = iter(loader)
    try:
        yield from batches
    except (ValueError, OSError, RuntimeError) as error:
        text = str(error)
        if "in DataLoader worker process" not in text:
            raise
        kind, _, message = text.strip().splitlines()[-1].partition(": ")
        raise (OSError if "OSError" in kind or "FileNotFound" in kind else ValueError)(message or kind) from error
    finally:
        if workers:  # at once: as long as an error's traceback holds on to them, this process could not end
            batches._shutdown_workers()  # type: ignore[attr-defined]


@contextmanager
def worker_deaths() -> Iterator[None]:
    """Raise the death of a process that reads data as an `OSError` of one sentence.

    PyTorch raises it wherever the main process happens to be, in a forward pass as well as in a wait for a batch.
    """
    try:
        yield
    except RuntimeError as error:
        found = re.match(
            r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: ([\w ]+))?", str(error)
        )
        if found is None:
            raise
        how = f"was killed ({found[2]})" if found[2] else "ended unexpectedly"
        raise OSError(
            f"a process that reads data (pid {found[1]}) {how}, as happens when memory runs out; "
            "give the same command again, with fewer --workers if it recurs"
        ) from error
