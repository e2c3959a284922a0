"""Speed of a network's prediction, in several equivalent forms."""

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor, fold_batch_norms
from dnlnet.bench.runtimes import other_runtimes
from dnlnet.bench.timing import best_times
from dnlnet.layout import convert_to_channels_last, to_channels_last


@dataclass(frozen=True)
class Row:
    """Best seconds per image or clip, and the largest difference from the eager form's logits."""

    form: str
    seconds: float
    difference: float


def equivalent_forms(
    network: nn.Module, image: Tensor, compiled: bool, threads: int
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Calls that run the network on an image or clip in each form, eager first."""
    last, folded = to_channels_last(image), fold_batch_norms(network, image)

    def call(net: nn.Module, x: Tensor) -> Callable[[], Tensor]:
        return lambda: first_tensor(net(x))

    yield "eager", call(network, image)
    yield "channels_last", call(convert_to_channels_last(deepcopy(network)), last)
    yield "folded", call(folded, image)
    yield "folded, channels_last", call(convert_to_channels_last(deepcopy(folded)), last)
    if compiled:
        yield "folded, inductor", call(torch.compile(folded), image)  # type: ignore[arg-type]
    for name, run in other_runtimes(folded, image, threads):
        yield name, partial(run, image)


@torch.inference_mode()
def bench_predict(network: nn.Module, image: Tensor, *, rounds: int = 5, threads: int = 2) -> list[Row]:
    """Measure every form in turn, `rounds` times.

    The compiled form needs a C++ compiler; ONNX Runtime and OpenVINO are measured if they are installed.
    """
    torch.set_num_threads(threads)
    compiled = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    calls = dict(equivalent_forms(network.eval(), image, compiled, threads))
    reference = calls["eager"]()
    differences = {name: float((call() - reference).abs().max()) for name, call in calls.items()}
    best = best_times(calls, rounds)
    return [Row(name, best[name], differences[name]) for name in calls]
