"""What recording a transformer's attention costs: time and memory beyond those of a plain pass."""

# N tokens, C channels

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dnlnet.bench.memory import measured_in_child, peak_of
from dnlnet.bench.timing import compare_times
from dnlnet.lens.measure.ablate import ablate
from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.recorded import RecordedAttention

NAME, PATCH = "vit_small_patch14_dinov2", 14
FORMS: dict[str, Callable[[nn.Module], AbstractContextManager[Any]]] = {
    "plain": lambda network: nullcontext(),
    "all recorded": capture,
    "last recorded": lambda network: capture(network, layers=["blocks.11.attn"]),
    "unary out": lambda network: ablate(network, "unary"),
}


@dataclass(frozen=True)
class Row:
    """One kind of pass.

    Args:
        form: what is done in it.
        seconds: the best time.
        ratio: of the time of a plain pass.
        asked_bytes: queries and keys of the layers that were asked for.
        kept_bytes: all tensors that are kept.
        peak_bytes: beyond the peak of a plain pass, in a process of its own; None where that cannot be measured.
    """

    form: str
    seconds: float
    ratio: float
    asked_bytes: int
    kept_bytes: int
    peak_bytes: int | None


def make_pass(form: str, size: int) -> Callable[[], Any]:
    """A closure that runs the network on one random picture, and gives what is recorded."""
    import timm

    torch.manual_seed(0)
    network = timm.create_model(NAME, img_size=size).eval()
    picture = torch.rand(1, 3, size, size)

    @torch.no_grad()
    def run() -> Any:
        with FORMS[form](network) as recorded:
            network(picture)
        return recorded

    return run


def bench_capture(size: int = 518, *, rounds: int = 10, threads: int = 2) -> list[Row]:
    """Measure every kind of pass in turn, `rounds` times; the plain one comes first."""
    if size % PATCH:
        near = max(1, round(size / PATCH)) * PATCH
        raise ValueError(f"size {size}: expected a multiple of {PATCH}, the side of a patch, such as {near}")
    torch.set_num_threads(threads)
    calls = {form: make_pass(form, size) for form in FORMS}
    recorded = {form: call() for form, call in calls.items()}
    times = compare_times(calls, rounds)
    peaks = {
        form: measured_in_child("dnlnet.bench.capture", {"form": form, "size": size, "threads": threads})
        for form in FORMS
    }
    plain = peaks["plain"]
    return [
        Row(
            form,
            *times[form],
            *(_bytes(recorded[form]) if isinstance(recorded[form], Captured) else (0, 0)),
            None if plain is None else (peaks[form] or 0) - plain,
        )
        for form in FORMS
    ]


def _bytes(captured: Captured) -> tuple[int, int]:
    """Bytes of queries and keys, and of the memory that all tensors kept take."""
    layers = [layer for layer in captured.values() if isinstance(layer, RecordedAttention)]
    tensors = [tensor for layer in layers for tensor in (layer.call.query, layer.call.key)]
    inside = [
        cell.cell_contents
        for layer in layers
        for step in layer.call.steps
        for cell in getattr(step, "__closure__", None) or ()
    ]
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in [*tensors, *(value for value in inside if isinstance(value, torch.Tensor))]
    }
    return sum(tensor.nbytes for tensor in tensors), sum(held.values())


def _measure(task: str) -> int:
    options = json.loads(task)
    torch.set_num_threads(options["threads"])
    call = make_pass(options["form"], options["size"])
    call()  # loads the libraries that any call needs
    return peak_of(call)


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
