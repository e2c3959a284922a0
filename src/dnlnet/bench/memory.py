"""Peak memory of one call, measured in a separate process, because a call can reuse freed memory unnoticed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_extra_bytes(
    variant: str,
    channels: int,
    size: tuple[int, ...],
    *,
    form: str = "fused",
    training: bool,
    batch: int = 1,
    threads: int,
    precision: str = "float32",
) -> int | None:
    """Return the bytes that one call of a block needs beyond its input and weights, or None if not measurable.

    >>> 0 < peak_extra_bytes("dnl", 8, (64, 64), training=False, threads=1) < 2**28
    True
    """
    task = {
        "variant": variant,
        "channels": channels,
        "size": size,
        "form": form,
        "training": training,
        "batch": batch,
        "threads": threads,
        "precision": precision,
    }
    return measure_in_child(["-m", "dnlnet.bench.memory"], task)


def measure_in_child(script: Sequence[str], task: Mapping[str, Any]) -> int | None:
    """Run a Python script with a task in JSON and return the bytes that it prints, or None outside Linux."""
    if not _RESET.exists():
        return None
    # Give tensors their own pages, which are returned when freed; the C library would keep other freed memory.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    command = [sys.executable, *script, json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"]
        raise OSError(f"the process measuring memory failed: {reason[-1]}")
    return int(done.stdout)


def peak_of(call: Callable[[], object]) -> int:
    """Return the bytes that a call needs beyond the current memory of this process, including its result."""
    before = _resident("VmRSS")
    _RESET.write_text("5")  # resets the peak
    result = call()
    peak = _resident("VmHWM") - before
    del result
    return peak


def _resident(field: str) -> int:
    """Return the resident bytes of this process: VmRSS is the current value, VmHWM the peak."""
    sizes = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(sizes[field].split()[0]) * 1024


def _measure_block(task: str) -> int:
    import torch

    from dnlnet.bench.block import make_calls

    options = json.loads(task)
    torch.set_num_threads(options.pop("threads"))
    size, form = options.pop("size"), options.pop("form")
    make_calls(**options, size=(4,) * len(size), forms=[form])[form]()  # loads shared libraries before measuring
    return peak_of(make_calls(**options, size=size, forms=[form])[form])


if __name__ == "__main__":
    print(_measure_block(sys.argv[1]))
