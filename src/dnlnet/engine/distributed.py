"""Ranks, reductions and synchronisation of processes. Everything also works in a single process."""

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
def process_group(wanted: str | None = None) -> Iterator[torch.device]:
    """Join the process group of `torchrun`, if there is one, and yield the device of this process.

    Args:
        wanted: Device such as `cpu` or `cuda:1`. Default: one GPU per process, or the CPU without GPUs.
    """
    device = torch.device("cpu") if wanted is None else _device(wanted)
    if wanted is None and torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if "RANK" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, world_size = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun restarts dead processes with the same store, which still has the keys of the first ones.
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:120]
        raise ValueError(f"--device {name}: cannot be used here ({reason}); try cpu") from None
    return device


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """Return whether this process writes files and prints. Also works after the group has been destroyed."""
    return (dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", 0))) == 0


def barrier() -> None:
    """Wait until every process has reached this point."""
    if dist.is_initialized():
        dist.barrier()


def mean_over_processes(values: Tensor) -> Tensor:
    """Return the mean of a tensor over the processes.

    >>> mean_over_processes(torch.tensor([2.0]))
    tensor([2.])
    """
    return sum_over_processes(values) / world_size()


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over the processes, as a new tensor."""
    total = values.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total


def gather(value: Any) -> list[Any]:
    """Return the values of all processes, in order of rank.

    >>> gather("mine")
    ['mine']
    """
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def any_process(here: bool, device: torch.device) -> bool:
    """Return whether a condition holds in any process.

    >>> any_process(True, torch.device("cpu"))
    True
    """
    return bool(sum_over_processes(torch.tensor(float(here), device=device)) > 0)


def in_main(work: Callable[[], None]) -> None:
    """Run a function in the main process only. If it fails, the other processes exit silently.

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
    """Copy the main process's buffers to all processes, whose batch norms may have different statistics."""
    if dist.is_initialized():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def shard(items: Sequence[Item]) -> list[Item]:
    """Return the items of this process: every n-th, starting from its rank.

    >>> shard(["a", "b", "c"])
    ['a', 'b', 'c']
    """
    return list(items[rank() :: world_size()])


def distribute(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to its device, and average its gradients over several processes.

    Batch norm is synchronised on GPUs only, because PyTorch has no synchronised batch norm for CPUs.
    """
    model = model.to(device)
    if world_size() == 1:
        return model
    if device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
