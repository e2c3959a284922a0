"""Peak memory of one call, measured in a separate process.

A fresh process has no free memory from earlier work that the call could reuse unnoticed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
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
) -> int | None:
    """Bytes that one call of a block needs beyond its input and weights; None where that cannot be measured.

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
    }
    return measured_in_child("dnlnet.bench.memory", task)


def measured_in_child(module: str, task: Mapping[str, Any]) -> int | None:
    """The bytes that a module prints when it is run with a task; None where they cannot be measured (not Linux)."""
    if not _RESET.exists():
        return None
    # Give tensors their own pages, returned when freed: count what is needed, not what the C library keeps.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(task)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"]
        raise OSError(f"the process measuring memory failed: {reason[-1]}")
    return int(done.stdout)


def _resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes."""
    sizes = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(sizes[field].split()[0]) * 1024


def _measure(task: str) -> int:
    import torch

    from dnlnet.bench.block import make_call

    options = json.loads(task)
    torch.set_num_threads(options.pop("threads"))
    size = tuple(options.pop("size"))
    make_call(**options, size=(4,) * len(size))()  # loads the libraries that any call needs
    return peak_of(make_call(**options, size=size))


def peak_of(call: Callable[[], object]) -> int:
    """Bytes that a call needs beyond what this process holds already; its result is kept until they are counted."""
    before = _resident("VmRSS")
    _RESET.write_text("5")  # the peak starts from here
    result = call()
    peak = _resident("VmHWM") - before
    del result
    return peak


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
