"""Score a model on a data set, over all processes, every sample once."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
from torch import nn

from dnlnet.engine.distributed import any_of, broadcast_buffers, gather, shard, world_size
from dnlnet.engine.move import to_device
from dnlnet.engine.reading import read, worker_deaths
from dnlnet.engine.task import Data, Task


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    data: Data,
    *,
    device: torch.device,
    workers: int = 0,
    progress: Callable[[], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Any:
    """The task's metric over all samples, the same in every process, and for every number of processes.

    Images may differ in size, so each is a batch of its own. `stop` is asked before each of them whether to give up;
    if it says so in one process, all of them do, and the result is None.
    """
    mode = model.training
    model.eval()
    broadcast_buffers(model)
    metric = task.metric()
    count = len(data)
    try:
        with worker_deaths(), closing(read(data, workers, sampler=shard(range(count)))) as batches:
            for _ in range(-(-count // world_size())):  # the same number everywhere, for all to be asked together
                if stop is not None and any_of(stop(), device):
                    return None
                if (batch := next(batches, None)) is not None:
                    task.score(model, to_device(batch, device), metric)
                    if progress is not None:
                        progress()
        metric.merge(gather)
        return metric
    finally:
        model.train(mode)
