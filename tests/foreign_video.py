"""Building blocks of the video networks of other code bases, in plain PyTorch."""

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Tensor]
Network = tuple[tuple[int, ...], int]  # bottlenecks per stage, and the width of the stem
Shapes = Iterator[tuple[str, tuple[int, ...]]]
TINY: Network = ((1, 2, 2, 1), 8)
R50: Network = ((3, 4, 6, 3), 64)
R101: Network = ((3, 4, 23, 3), 64)


def norm_shapes(name: str, channels: int) -> Shapes:
    for tensor in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{tensor}", (channels,)
    yield f"{name}.num_batches_tracked", ()


def filled(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> State:
    """Fill tensors (including norm statistics) with random numbers that keep the scale of activations."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in shapes:
        tensor = torch.randn(shape, generator=generator)
        if name.endswith("num_batches_tracked"):
            tensor = torch.tensor(3)
        elif name.endswith("running_var"):
            tensor = tensor.abs() + 0.5
        elif len(shape) > 1:
            tensor *= (2 / tensor[0].numel()) ** 0.5
        state[name] = tensor
    return state


def without_numbers(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> State:
    return {name: torch.empty(shape, device="meta") for name, shape in shapes}


def norm(x: Tensor, state: State, name: str) -> Tensor:
    weight, bias, mean, var = (state[f"{name}.{t}"] for t in ("weight", "bias", "running_mean", "running_var"))
    return F.batch_norm(x, mean, var, weight, bias)


def conv(x: Tensor, state: State, name: str, stride: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    padding = [size // 2 for size in weight.shape[2:]]
    return F.conv3d(x, weight, state.get(f"{name}.bias"), (1, stride, stride), padding)
