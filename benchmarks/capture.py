"""Measure what recording a transformer's attention costs: time and memory of a forward pass, against a plain one.

The network is ViT-S/14 with random weights. Peak memory is measured in child processes (Linux only).

Example: python benchmarks/capture.py --rounds 6 --json benchmarks/results/capture.json
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn

from dnlnet.bench.block import describe_machine
from dnlnet.bench.memory import measure_in_child, peak_of
from dnlnet.bench.timing import compare_times
from dnlnet.cli.terminal.tables import print_table
from dnlnet.files import write_json
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
class PassCost:
    """Cost of one form of the forward pass.

    Args:
        form: Key of `FORMS`.
        seconds: Best time.
        ratio: Time relative to a plain pass.
        asked_bytes: Bytes of the queries and keys of the selected layers.
        kept_bytes: Bytes of all tensors that stay in memory.
        peak_bytes: Peak memory minus that of a plain pass, or None if it cannot be measured.
    """

    form: str
    seconds: float
    ratio: float
    asked_bytes: int
    kept_bytes: int
    peak_bytes: int | None


def main() -> None:
    """Measure every form, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=518, help="side of the image, a multiple of 14")
    parser.add_argument("--rounds", type=int, default=10, help="interleaved runs: best times, median ratios")
    parser.add_argument("--threads", type=int, default=2, help="threads of the network")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    if given.size % PATCH:
        near = max(1, round(given.size / PATCH)) * PATCH
        parser.error(f"--size {given.size}: expected a multiple of {PATCH}, such as {near}")
    rows = bench_capture(given.size, rounds=given.rounds, threads=given.threads)
    machine = describe_machine(given.threads)
    print_table(
        f"ViT-S/14 on {given.size} x {given.size} pixels",
        [
            {
                "pass": row.form,
                "ms": f"{1e3 * row.seconds:.1f}",
                "of plain": f"{row.ratio:.2f}",
                "q and k MB": f"{1e-6 * row.asked_bytes:.1f}",
                "kept MB": f"{1e-6 * row.kept_bytes:.1f}",
                "peak MB": "-" if row.peak_bytes is None else f"{1e-6 * row.peak_bytes:.1f}",
            }
            for row in rows
        ],
        caption=f"peak: beyond that of a plain pass; {machine}",
    )
    if given.json is not None:
        about = {"machine": machine, "size": given.size, "rounds": given.rounds}
        write_json(given.json, {**about, "rows": [asdict(row) for row in rows]})
        print(f"written: {given.json}")


def bench_capture(size: int, *, rounds: int, threads: int) -> list[PassCost]:
    """Measure all forms in interleaved rounds, the plain form first."""
    torch.set_num_threads(threads)
    calls = {form: make_pass(form, size) for form in FORMS}
    recorded = {form: call() for form, call in calls.items()}
    times = compare_times(calls, rounds)
    command = [__file__, "--child"]
    peaks = {form: measure_in_child(command, {"form": form, "size": size, "threads": threads}) for form in FORMS}
    plain = peaks["plain"]
    return [
        PassCost(
            form,
            *times[form],
            *(_recorded_bytes(recorded[form]) if isinstance(recorded[form], Captured) else (0, 0)),
            None if plain is None else (peaks[form] or 0) - plain,
        )
        for form in FORMS
    ]


def make_pass(form: str, size: int) -> Callable[[], Any]:
    """Return a call that runs the network on a random image and returns what it recorded."""
    torch.manual_seed(0)
    network = timm.create_model(NAME, img_size=size).eval()
    image = torch.rand(1, 3, size, size)

    @torch.no_grad()
    def run() -> Any:
        with FORMS[form](network) as recorded:
            network(image)
        return recorded

    return run


def _recorded_bytes(captured: Captured) -> tuple[int, int]:
    """Return the bytes of queries and keys, and the bytes of all storage that the records keep alive."""
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


def _measure_peak(task: str) -> int:
    options = json.loads(task)
    torch.set_num_threads(options.pop("threads"))
    call = make_pass(**options)
    call()  # load the libraries that every call needs
    return peak_of(call)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(_measure_peak(sys.argv[2]))
    else:
        main()
