"""Checks that the block matches its equations on a device, each in a separate process.

The reference is the explicit form in double precision on the CPU. A crash ends only the process of the check; half
precision crashes on processors that announce instructions they lack.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.attention import VARIANTS, NonLocalBlock
from dnlnet.bench.block import describe_machine
from dnlnet.bench.memory import peak_extra_bytes
from dnlnet.bench.timing import find_device
from dnlnet.progress import BARS, Progress

_CHANNELS, _BATCH = 16, 2
_SIZES = ((37,), (9, 13), (40, 40), (3, 5, 7))  # (40, 40) has several blocks of rows
_MAP = (72, 72)  # size for the memory check: one attention map takes 107 MB in float32


@dataclass(frozen=True)
class Check:
    """Result of a check: its largest error, relative to the largest expected value."""

    name: str
    cases: int
    error: float | None
    allowed: float
    note: str = ""

    @property
    def skipped(self) -> bool:
        """True if nothing was compared; the note gives the reason."""
        return self.error is None and self.cases == 0

    @property
    def holds(self) -> bool:
        """True if every case is within the allowed error; NaN never is."""
        return self.error is not None and self.error <= self.allowed


class Unavailable(Exception):  # noqa: N818  not an error: the check is skipped
    """Error for a device that lacks something that a check needs."""


def describe_device(device: str) -> str:
    """Describe a device. Raises ValueError if it is missing.

    >>> "torch" in describe_device("cpu")
    True
    """
    if find_device(device).startswith("cuda"):
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return describe_machine(torch.get_num_threads()).removesuffix(", float32")


def run_check(name: str, device: str) -> Check:
    """Run one check in a separate process.

    >>> run_check("float32", "cpu").holds
    True
    """
    done = subprocess.run(
        [sys.executable, "-m", "dnlnet.bench.equalities", name, device], capture_output=True, text=True
    )
    if done.returncode == 0:
        return Check(**json.loads(done.stdout.splitlines()[-1]))
    allowed = CHECKS[name][1]
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode)
        note = f"the process was ended by {ended.name}"
        if ended is signal.SIGILL:
            note += "; the processor announces an instruction that it lacks: try ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
        return Check(name, 1, None, allowed, note)
    reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return Check(name, 1, None, allowed, reason[-1])


def verify_device(device: str = "cpu", *, progress: Progress = BARS) -> list[Check]:
    """Check that the block matches its equations on a device, with each check in a separate process."""
    describe_device(device)
    checks = []
    with progress.track("checks", len(CHECKS)) as bar:
        for name in CHECKS:
            checks.append(run_check(name, device))
            bar.advance(note=TITLES[name])
    return checks


# ---- fused = explicit


def _cases(sizes: Sequence[tuple[int, ...]] = _SIZES) -> Iterator[tuple[NonLocalBlock, Tensor]]:
    """Yield blocks whose attention is far from uniform, and inputs whose means are far from zero."""
    for number, (variant, size) in enumerate((variant, size) for variant in VARIANTS for size in sizes):
        torch.manual_seed(number)
        block = NonLocalBlock(_CHANNELS, variant, dims=len(size), gate="scalar")
        for parameter in block.parameters():
            nn.init.normal_(parameter, std=0.3)
        yield block, torch.randn(_BATCH, _CHANNELS, *size) + 0.5


def _results(block: nn.Module, x: Tensor, forward: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the output, and the gradients of its mean square for the input and every parameter."""
    x = x.detach().requires_grad_()
    out = forward(x)
    loss = out.to(torch.promote_types(out.dtype, torch.float32)).square().mean()
    return out.detach(), list(torch.autograd.grad(loss, [x, *block.parameters()]))


def _error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference relative to the largest value, because some gradients are zero up to rounding."""
    largest = max(float(x.abs().max()) for x in expected)
    return max_or_nan(
        float((x.double().cpu() - y).abs().max()) / largest for x, y in zip(found, expected, strict=True)
    )


def max_or_nan(values: Iterable[float]) -> float:
    """Return the largest value, or NaN if one of them is NaN.

    >>> max_or_nan([0.1, float("nan"), 0.2])
    nan
    """
    return float(torch.tensor(list(values), dtype=torch.float64).max())


def _compare(
    device: torch.device, dtype: torch.dtype, *, autocast: bool = False, compiled: bool = False
) -> Iterator[float]:
    stored = torch.float32 if autocast else dtype
    for block, x in _cases(_SIZES[1:2] if compiled else _SIZES):
        block, x = block.to(stored), x.to(stored)
        exact = deepcopy(block).double()
        expected = _results(exact, x.double(), exact.forward_explicit)
        here = block.to(device)
        if compiled:
            torch.compiler.reset()
        forward: Any = torch.compile(here) if compiled else here
        context: AbstractContextManager[Any] = torch.autocast(device.type, dtype) if autocast else nullcontext()
        with context:
            out, grads = _results(here, x.to(device), forward)
        yield max_or_nan([_error([out], [expected[0]]), _error(grads, expected[1])])


def _in(dtype: torch.dtype) -> Callable[[torch.device], Iterator[float]]:
    def compare(device: torch.device) -> Iterator[float]:
        if dtype == torch.float64 and device.type == "mps":
            raise Unavailable("the device has no double precision")
        return _compare(device, dtype)

    return compare


def _autocast(device: torch.device) -> Iterator[float]:
    return _compare(device, torch.float16 if device.type == "mps" else torch.bfloat16, autocast=True)


def _compiled(device: torch.device) -> Iterator[float]:
    if device.type == "cpu" and not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        raise Unavailable("no C++ compiler")
    return _compare(device, torch.float32, compiled=True)


def _memory(device: torch.device) -> Iterator[float]:
    """Yield the peak bytes of a training step beyond input and weights, relative to one attention map."""
    one_map = 4 * (_MAP[0] * _MAP[1]) ** 2
    if device.type == "cuda":
        block = NonLocalBlock(_CHANNELS).to(device)
        x = torch.randn(1, _CHANNELS, *_MAP, device=device, requires_grad=True)
        block(x[..., :8, :8]).sum().backward()  # loads shared libraries before measuring
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        block(x).sum().backward()
        peak: int | None = torch.cuda.max_memory_allocated(device) - before
    elif device.type == "cpu":
        peak = peak_extra_bytes("dnl", _CHANNELS, _MAP, training=True, threads=1)
    else:
        peak = None
    if peak is None:
        raise Unavailable("peak memory cannot be measured on this device")
    yield peak / one_map


# Checks and their allowed errors: a few rounding errors of the type, relative to the largest value.
CHECKS: Mapping[str, tuple[Callable[[torch.device], Iterator[float]], float]] = {
    "float64": (_in(torch.float64), 1e-12),
    "float32": (_in(torch.float32), 1e-4),
    "float16": (_in(torch.float16), 2e-2),
    "bfloat16": (_in(torch.bfloat16), 1e-1),
    "autocast": (_autocast, 1e-1),
    "compiled": (_compiled, 1e-4),
    "memory": (_memory, 1.0),
}
# Titles for users.
TITLES: Mapping[str, str] = {
    **{name: f"fused = explicit in {name}" for name in ("float64", "float32", "float16", "bfloat16")},
    "autocast": "fused = explicit under autocast",
    "compiled": "compiled = explicit",
    "memory": "peak memory of a training step, in attention maps",
}


def _measure(name: str, device: str) -> Check:
    check, allowed = CHECKS[name]
    torch.set_num_threads(min(2, torch.get_num_threads()))
    try:
        errors = list(check(torch.device(device)))
    except Unavailable as reason:
        return Check(name, 0, None, allowed, f"left out: {reason}")
    return Check(name, len(errors), max_or_nan(errors), allowed)


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(*sys.argv[1:]))))
