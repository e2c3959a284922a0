"""Peak memory of one block call, measured in a process of its own.

A fresh process has no memory left over from earlier work that a call could use again unseen.
"""

import json
import subprocess
import sys
from pathlib import Path


def peak_extra_bytes(
    variant: str, channels: int, size: tuple[int, ...], *, fused: bool, training: bool, threads: int
) -> int | None:
    """Bytes that one call needs beyond its input and weights; None if the system ended the process.

    >>> 0 < peak_extra_bytes("dnl", 8, (64, 64), fused=True, training=False, threads=1) < 2**28
    True
    """
    task = {
        "variant": variant,
        "channels": channels,
        "size": size,
        "fused": fused,
        "training": training,
        "threads": threads,
    }
    done = subprocess.run(
        [sys.executable, "-m", "dnlnet.bench.memory", json.dumps(task)], capture_output=True, text=True
    )
    if done.returncode < 0 or "not enough memory" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"the process measuring memory failed: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout)


def _resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; memory can be measured on Linux only")


def _measure(task: str) -> int:
    import torch

    from dnlnet.bench.block import make_call

    options = json.loads(task)
    torch.set_num_threads(options.pop("threads"))
    size = tuple(options.pop("size"))
    make_call(**options, size=(4,) * len(size))()  # loads the libraries that any call needs
    call = make_call(**options, size=size)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    call()
    return _resident("VmHWM") - before


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
