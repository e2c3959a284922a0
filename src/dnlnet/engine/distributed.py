"""One process or many: who this is, and how numbers come together.

Everything here also works in a single process, so that the rest of the engine has no second path.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

Item = TypeVar("Item")


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the processes that `torchrun` started, if it did; gives the device of this one."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else None
    device = device or torch.device("cpu")
    if "RANK" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, world_size = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun starts dead processes again with the same store: what the first ones left there leads nowhere.
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """Whether this is the process that writes files and speaks, also once the processes have parted."""
    return (dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", 0))) == 0


def barrier() -> None:
    """Return once every process has come here."""
    if dist.is_initialized():
        dist.barrier()


def mean_over_processes(values: Tensor) -> Tensor:
    """The mean of a tensor over the processes.

    >>> mean_over_processes(torch.tensor([2.0]))
    tensor([2.])
    """
    return sum_over_processes(values) / world_size()


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over the processes, a new tensor."""
    total = values.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total


def gather(value: Any) -> list[Any]:
    """Every process's value of something, in the order of their numbers.

    >>> gather("mine")
    ['mine']
    """
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def any_of(here: bool, device: torch.device) -> bool:
    """Whether something is so in any of the processes.

    >>> any_of(True, torch.device("cpu"))
    True
    """
    return bool(sum_over_processes(torch.tensor(float(here), device=device)) > 0)


def in_main(work: Callable[[], None]) -> None:
    """Do in the main process what may be refused; the others wait, and end without a word if it was.

    >>> in_main(lambda: print("once"))
    once
    """
    refused: Exception | None = None
    if is_main():
        try:
            work()
        except (ValueError, OSError) as error:
            refused = error
    if gather(refused is not None)[0]:
        raise SystemExit(2) if refused is None else refused


def broadcast_buffers(model: nn.Module) -> None:
    """Give every process the main one's buffers: batch norms that are not synchronised count each for itself."""
    if dist.is_initialized():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def shard(items: Sequence[Item]) -> list[Item]:
    """Every n-th item from this process's number on: all are dealt out, none twice.

    >>> shard(["a", "b", "c"])
    ['a', 'b', 'c']
    """
    return list(items[rank() :: world_size()])


def distribute(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on its device, with gradients averaged over the processes if there are several.

    Batch norm is synchronised on GPUs; PyTorch has no synchronised one for CPUs.
    """
    model = model.to(device)
    if world_size() == 1:
        return model
    if device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
