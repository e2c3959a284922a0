"""Check before training that a recipe fits this machine."""

import torch

from dnlnet.engine import distributed
from dnlnet.engine.memory import require_memory, step_bytes
from dnlnet.engine.optim import freeze, set_training_mode
from dnlnet.recipes.recipe import Recipe

_WORKER_BYTES = 100_000_000  # minimum per process that reads data
_ADVICE = "lower schedule.batch, the size in data or model.width, or raise schedule.accumulate"


def require_feasible(recipe: Recipe, classes: int, workers: int = 0, device: torch.device | str = "cpu") -> None:
    """Raise if the network does not accept the recipe's input size, or a training step exceeds the memory.

    The estimate covers weights, gradients, momentum and the tensors kept for the backward pass, without the heads of
    a detector. The actual need is higher.

    >>> from dnlnet.recipes.override import override
    >>> from dnlnet.registry import find_recipe
    >>> large = override(find_recipe("scenes-tiny-dnl"), ["data.crop=[60000, 60000]", "schedule.batch=4096"])
    >>> require_feasible(large, classes=6)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: a step of 4096 x 3 x 60000 x 60000 values takes at least ...
    """
    require_memory(workers * _WORKER_BYTES, f"reading with {workers} processes", "lower --workers")
    count = max(1, recipe.schedule.batch // recipe.schedule.accumulate // distributed.world_size())
    shape = (count, 3, *recipe.training_size)
    what = f"a step of {' x '.join(map(str, shape))} values"
    require_memory(4 * torch.Size(shape).numel(), what, _ADVICE, device)
    with torch.device("meta"):
        network = recipe.build(classes, pretrained=False)
        batch = torch.empty(shape)
    freeze(network, recipe.training.frozen)
    set_training_mode(network, recipe.training.frozen_statistics)
    try:
        needed = step_bytes(recipe.measured_part(network), batch)
    except (RuntimeError, ValueError) as error:  # PyTorch's layers reject the input size
        raise ValueError(f"the network cannot take {what}: {str(error).strip().splitlines()[0]}") from None
    halves = 1 if recipe.training.precision == "float32" else 2
    require_memory(needed // halves, what, _ADVICE, device)
