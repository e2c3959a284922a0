"""Parameters, multiply-accumulates and latency of a network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

CONVENTION = (
    "MACs: multiply-accumulates of convolutions, linear maps and attention for one image or clip, auxiliary head "
    "included; normalisation, activations and resizing are not counted (the paper counts them)"
)


@dataclass(frozen=True)
class Complexity:
    """Parameters and multiply-accumulates for one image or clip."""

    parameters: int
    macs: int


def count_complexity(build: Callable[[], nn.Module], size: Sequence[int]) -> Complexity:
    """Count parameters and MACs on the meta device, where nothing is computed.

    Args:
        build: Function that builds the network.
        size: Height and width of an image, or frames, height and width of a clip.

    >>> count_complexity(lambda: nn.Conv2d(3, 8, kernel_size=1, bias=False), (10, 10))
    Complexity(parameters=24, macs=2400)
    """
    with torch.device("meta"):
        model = build().train()  # with the auxiliary head
        inputs = torch.empty(1, 3, *size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return Complexity(sum(p.numel() for p in model.parameters()), int(counter.get_total_flops()) // 2)


def measure_latency(build: Callable[[], nn.Module], size: Sequence[int], rounds: int = 3) -> float:
    """Measure seconds per image or clip on this machine: the best of `rounds`, after a warm-up."""
    model = build().eval()
    inputs = torch.zeros(1, 3, *size)
    times = []
    with torch.inference_mode():
        for _ in range(rounds + 1):
            start = perf_counter()
            model(inputs)
            times.append(perf_counter() - start)
    return min(times[1:])
