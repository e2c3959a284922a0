"""Batches from a loader, and errors of its worker processes in the words they had there."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from dnlnet.engine.signals import leave_to_parent


def read(
    data: Dataset[Any],
    workers: int,
    *,
    sampler: Iterable[Any] | None = None,
    batch_sampler: Iterable[Any] | None = None,
) -> Iterator[Any]:
    """The batches of a data set in the order of a `sampler` or a `batch_sampler`, read by worker processes.

    The workers leave signals to this process, and no random number is taken from the run's generators. An error in a
    worker is raised here with its own message alone: PyTorch puts the worker's whole traceback into the message,
    which hides the one sentence that matters.
    """
    loader = DataLoader(
        data,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        worker_init_fn=leave_to_parent,
        sampler=sampler,
        batch_sampler=batch_sampler,
        collate_fn=getattr(data, "collate", None),  # data whose samples differ in size says what a batch of them is
    )
    try:
        yield from loader
    except (ValueError, OSError, RuntimeError) as error:
        text = str(error)
        if "in DataLoader worker process" not in text:
            raise
        kind, _, message = text.strip().splitlines()[-1].partition(": ")
        raise (OSError if "OSError" in kind or "FileNotFound" in kind else ValueError)(message or kind) from error
