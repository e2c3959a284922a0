"""Peak memory of one block call, measured in a separate process.

A fresh process has no free memory from earlier work that the call could reuse unnoticed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_extra_bytes(
    variant: str, channels: int, size: tuple[int, ...], *, fused: bool, training: bool, threads: int
) -> int | None:
    """Bytes that one call needs beyond its input and weights; None where that cannot be measured (not Linux).

    >>> 0 < peak_extra_bytes("dnl", 8, (64, 64), fused=True, training=False, threads=1) < 2**28
    True
    """
    if not _RESET.exists():
        return None
    task = {
        "variant": variant,
        "channels": channels,
        "size": size,
        "fused": fused,
        "training": training,
        "threads": threads,
    }
    # Give tensors their own pages, returned when freed: count what is needed, not what the C library keeps.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run(
        [sys.executable, "-m", "dnlnet.bench.memory", json.dumps(task)],
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
    call = make_call(**options, size=size)
    before = _resident("VmRSS")
    _RESET.write_text("5")  # the peak starts from here
    call()
    return _resident("VmHWM") - before


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
