"""The fused block against the explicit one: time, share of the matrix-multiply limit, and memory."""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from dnlnet.attention import VARIANTS, NonLocalBlock
from dnlnet.bench.memory import peak_extra_bytes
from dnlnet.bench.timing import best_times
from dnlnet.engine.memory import installed_bytes

SIZES: dict[str, tuple[int, ...]] = {
    "32x32": (32, 32),
    "65x65": (65, 65),
    "97x97": (97, 97),
    "128x256": (128, 256),
    "8x28x28": (8, 28, 28),
}
MULTIPLY = 2048


@dataclass(frozen=True)
class Row:
    """One variant at one size, forward or forward and backward; times in seconds, memory in bytes.

    Explicit values are None if the explicit form does not fit in memory.
    """

    size: str
    variant: str
    training: bool
    fused_seconds: float
    explicit_seconds: float | None
    limit_seconds: float
    fused_bytes: int | None
    explicit_bytes: int | None

    @property
    def time_ratio(self) -> float | None:
        """Fused over explicit time."""
        return self.explicit_seconds and self.fused_seconds / self.explicit_seconds

    @property
    def share_of_limit(self) -> float:
        """Time of the same number of operations as large matrix multiplies, over ours."""
        return self.limit_seconds / self.fused_seconds

    @property
    def memory_ratio(self) -> float | None:
        """Fused over explicit extra memory."""
        return self.explicit_bytes and self.fused_bytes and self.fused_bytes / self.explicit_bytes


def make_call(
    variant: str, channels: int, size: Sequence[int], *, fused: bool, training: bool, device: str = "cpu"
) -> Callable[[], torch.Tensor]:
    """A closure that runs the block once on a fixed random input.

    >>> make_call("dnl", 8, (4, 5), fused=True, training=True)().shape
    torch.Size([1, 8, 4, 5])
    """
    torch.manual_seed(0)
    block = NonLocalBlock(channels, variant, dims=len(size)).to(device)
    x = torch.randn(1, channels, *size, device=device, requires_grad=training)
    forward = block.forward if fused else block.forward_explicit
    if not training:
        return torch.no_grad()(lambda: forward(x))
    upstream = torch.randn_like(x)

    def step() -> torch.Tensor:
        x.grad = None
        block.zero_grad()
        out = forward(x)
        out.backward(upstream)
        return out

    return step


def bench_block(
    variants: Iterable[str], sizes: Iterable[str], *, channels: int = 512, rounds: int = 5, threads: int = 2
) -> Iterator[Row]:
    """Measure each size and variant in turn, forward and in training; rows are yielded as they finish.

    Within a row, fused, explicit and the plain matrix multiply take turns, `rounds` times, and the best time of
    each counts.
    """
    torch.set_num_threads(threads)
    for size in sizes:
        for variant in variants:
            for training in (False, True):
                yield _measure(variant, channels, size, training, rounds, threads)


def _measure(variant: str, channels: int, size: str, training: bool, rounds: int, threads: int) -> Row:
    shape = SIZES[size]

    def memory(fused: bool) -> int | None:
        return peak_extra_bytes(variant, channels, shape, fused=fused, training=training, threads=threads)

    with_explicit = _explicit_fits(variant, shape)
    calls = {"fused": make_call(variant, channels, shape, fused=True, training=training)}
    if with_explicit:
        calls["explicit"] = make_call(variant, channels, shape, fused=False, training=training)
    # As many multiplies as make up the block's operations, timed together: shorter stretches would hit quieter
    # moments of the machine than the block can.
    flops = _flops(variant, channels, shape, training)
    multiplies = max(1, round(flops / (2 * MULTIPLY**3)))
    calls["multiply"] = _multiply_call(multiplies)
    best = best_times(calls, rounds)
    return Row(
        size=size,
        variant=variant,
        training=training,
        fused_seconds=best["fused"],
        explicit_seconds=best.get("explicit"),
        limit_seconds=best["multiply"] * flops / (multiplies * 2 * MULTIPLY**3),
        fused_bytes=memory(fused=True),
        explicit_bytes=memory(fused=False) if with_explicit else None,
    )


def _multiply_call(count: int) -> Callable[[], torch.Tensor]:
    """A closure that multiplies two large matrices `count` times."""
    left, right, out = (torch.randn(MULTIPLY, MULTIPLY) for _ in range(3))

    def multiply() -> torch.Tensor:
        for _ in range(count):
            torch.mm(left, right, out=out)
        return out

    return multiply


def _flops(variant: str, channels: int, size: Sequence[int], training: bool) -> int:
    """FLOPs of the fused block's matrix multiplies, counted on the meta device."""
    call = make_call(variant, channels, size, fused=True, training=training, device="meta")
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def _explicit_fits(variant: str, size: Sequence[int]) -> bool:
    """Three float32 maps live at once in the explicit backward pass; a unary variant has none."""
    if not VARIANTS[variant].pairwise:
        return True
    installed = installed_bytes()
    return installed is None or 3.5 * 4 * torch.Size(size).numel() ** 2 < installed


def describe_machine(threads: int) -> str:
    """Processor, threads and versions, for the caption of a table."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    counted = f"{threads} thread{'' if threads == 1 else 's'}"
    return f"{model}, {counted}, torch {torch.__version__}, float32"
