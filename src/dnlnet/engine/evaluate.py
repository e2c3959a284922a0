"""Score a model on a data set, over all processes, every sample once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from dnlnet.engine.distributed import gather, share_of, take_main_buffers
from dnlnet.engine.move import to_device
from dnlnet.engine.reading import read
from dnlnet.engine.task import Task


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    data: Dataset[Any],
    *,
    device: torch.device,
    workers: int = 0,
    progress: Callable[[], None] | None = None,
) -> Any:
    """The task's metric over all samples, the same in every process, and for every number of processes.

    Images may differ in size, so each is a batch of its own.
    """
    mode = model.training
    model.eval()
    take_main_buffers(model)
    metric = task.metric()
    indices = share_of(range(len(data)))  # type: ignore[arg-type]
    for batch in read(data, workers, sampler=indices):
        task.score(model, to_device(batch, device), metric)
        if progress is not None:
            progress()
    metric.merge(gather)
    model.train(mode)
    return metric
