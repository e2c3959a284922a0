"""Evaluation of a model on a data set, split over all processes."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
from torch import nn

from dnlnet.engine.distributed import any_process, broadcast_buffers, gather, shard, world_size
from dnlnet.engine.loading import explain_worker_death, load_batches, to_device
from dnlnet.engine.task import Data, Task
from dnlnet.progress import SILENT, Progress


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    data: Data,
    *,
    device: torch.device,
    workers: int = 0,
    name: str = "evaluating",
    progress: Progress = SILENT,
    stop: Callable[[], bool] | None = None,
) -> Any:
    """Return the task's metric over all samples, the same in every process and for any number of processes.

    Each sample is a separate batch, because images may differ in size. `stop` is called before each sample; if it
    returns True in one process, all processes stop and return None. The progress of this process is shown as `name`.
    """
    mode = model.training
    model.eval()
    broadcast_buffers(model)
    metric = task.metric()
    mine = shard(range(len(data)))
    try:
        with (
            explain_worker_death(),
            closing(load_batches(data, workers, sampler=mine)) as batches,
            progress.track(name, len(mine)) as scored,
        ):
            for _ in range(-(-len(data) // world_size())):  # same in every process: all call `stop` together
                if stop is not None and any_process(stop(), device):
                    return None
                if (batch := next(batches, None)) is not None:
                    task.score(model, to_device(batch, device), metric)
                    scored.advance()
        metric.merge(gather)
        return metric
    finally:
        model.train(mode)
