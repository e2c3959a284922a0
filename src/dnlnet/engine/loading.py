"""Loading of batches in worker processes, with errors of one sentence, and transfer to and from a device."""

import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dnlnet.engine.task import Data
from dnlnet.layout import map_tensors, to_channels_last
from dnlnet.signals import ignore_stop_signals


def load_batches(
    data: Data,
    workers: int,
    *,
    sampler: Iterable[Any] | None = None,
    batch_sampler: Iterable[Any] | None = None,
) -> Generator[Any, None, None]:
    """Load the batches of a data set in worker processes, in the order of a `sampler` or `batch_sampler`.

    The workers ignore stop signals, and loading does not advance the run's random generators. An error in a worker is
    raised with its own message, without the traceback that PyTorch adds. Close the generator if you stop early, or
    the workers keep running.
    """
    loader: DataLoader[Any] = DataLoader(
        data,  # type: ignore[arg-type]
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
        worker_init_fn=_begin_worker,
        sampler=sampler,
        batch_sampler=batch_sampler,
        collate_fn=getattr(data, "collate", None),  # for samples of different sizes
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
        if workers:  # now, because this process cannot end while a traceback refers to them
            batches._shutdown_workers()  # type: ignore[attr-defined]


def _begin_worker(_: int) -> None:
    """Ignore stop signals, which are meant for the main process, and silence the thread that sends batches."""
    ignore_stop_signals()
    sys.excepthook = lambda *_: None  # PyTorch passes other errors to the main process


@contextmanager
def explain_worker_death() -> Iterator[None]:
    """Raise an `OSError` with one sentence if a worker process dies.

    PyTorch raises its own error at an arbitrary place in the main process.
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
            "run the same command again, with fewer --workers if it recurs"
        ) from error


def to_device(batch: Any, device: torch.device, *, channels_last: bool = False) -> Any:
    """Move the tensors of a batch to a device, images and clips in channels-last memory if required.

    >>> to_device({"image": torch.zeros(1, 3, 4, 4), "name": "a.png"}, torch.device("cpu"))["name"]
    'a.png'
    """

    def move(tensor: Tensor) -> Tensor:
        moved = tensor.to(device, non_blocking=True)
        return to_channels_last(moved) if channels_last else moved

    return map_tensors(move, batch)


def to_host(values: Tensor) -> Callable[[], Tensor]:
    """Start to copy a small tensor to the host, and return a function that waits for the copy and returns it.

    It waits for the work enqueued before this call, not for later work, as reading the tensor itself would.

    >>> to_host(torch.ones(2))()
    tensor([1., 1.])
    """
    if values.device.type == "cpu":
        return lambda: values
    copy = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    copied = torch.accelerator.current_stream(values.device).record_event()

    def wait() -> Tensor:
        copied.synchronize()
        return copy

    return wait
