"""Time and memory of the fused block, compared with the explicit one, its peers and the matrix-multiply limit."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Literal

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from dnlnet.attention import VARIANTS, NonLocalBlock
from dnlnet.bench.memory import peak_extra_bytes
from dnlnet.bench.timing import paired_ratio, time_rounds
from dnlnet.engine.memory import available_bytes

SIZES: dict[str, tuple[int, ...]] = {
    "8x8": (8, 8),
    "16x16": (16, 16),
    "32x32": (32, 32),
    "65x65": (65, 65),
    "97x97": (97, 97),
    "128x256": (128, 256),
    "8x28x28": (8, 28, 28),
}
MULTIPLY = 2048  # side of the multiplied matrices
LONGEST_CONTROL = 1.0  # seconds; longer calls are less noisy, and their control takes too long
Form = Literal["fused", "explicit", "sdpa", "flex", "float32"]  # the last is the fused form without autocast


@dataclass(frozen=True)
class BlockCost:
    """Time and memory of one variant at one size, forward or in training.

    Explicit values are None if the explicit form does not fit in memory. Values of peers are None if they were not
    requested or cannot run, and values in float32 unless another precision was measured. `limit_seconds` times a
    series of multiplies that takes as long as the block. `single_limit_seconds` uses the best single multiply, which
    is short enough to escape disturbances.

    `time_ratio` is the median over rounds of the fused time over the explicit time, and `float32_ratio` that of the
    fused time over the fused time in float32. A share is the time of a limit over the fused time. `control_ratio`
    compares the explicit form with itself to show the noise of such a ratio; it is None for calls of more than a
    second.
    """

    size: str
    batch: int
    variant: str
    training: bool
    fused_seconds: float
    explicit_seconds: float | None
    sdpa_seconds: float | None
    flex_seconds: float | None
    limit_seconds: float
    single_limit_seconds: float
    share_of_limit: float
    share_of_single_limit: float
    time_ratio: float | None
    control_ratio: float | None
    fused_bytes: int | None
    explicit_bytes: int | None
    float32_seconds: float | None = None
    float32_ratio: float | None = None
    float32_bytes: int | None = None

    @property
    def memory_ratio(self) -> float | None:
        """Extra memory of the fused form over that of the explicit one."""
        return self.explicit_bytes and self.fused_bytes and self.fused_bytes / self.explicit_bytes


def make_calls(
    variant: str,
    channels: int,
    size: Sequence[int],
    forms: Sequence[Form],
    *,
    training: bool,
    batch: int = 1,
    device: str = "cpu",
    temperature: float = 1.0,
    precision: str = "float32",
) -> dict[Form, Callable[[], torch.Tensor]]:
    """Return calls that run forms of one block on the same tensors, whose addresses affect times by several per cent.

    >>> make_calls("dnl", 8, (4, 5), ["fused"], training=True)["fused"]().shape
    torch.Size([1, 8, 4, 5])
    """
    torch.manual_seed(0)
    block = NonLocalBlock(channels, variant, dims=len(size), temperature=temperature).to(device)
    x = torch.randn(batch, channels, *size, device=device, requires_grad=training)
    upstream = torch.randn_like(x) if training else None

    def run(form: Form) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bfloat16" and form != "float32"):
            return forwards[form](x)

    def step(form: Form) -> torch.Tensor:
        x.grad = None
        block.zero_grad()
        out = run(form)
        out.backward(upstream)
        return out

    forwards = {form: _forward_of(block, form) for form in forms}
    if training:
        return {form: partial(step, form) for form in forms}
    return {form: torch.no_grad()(partial(run, form)) for form in forms}


def _forward_of(block: NonLocalBlock, form: Form) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the block's forward pass in one of its own forms, or with the attention of a peer."""
    if form in ("fused", "float32"):
        return block.forward
    if form == "explicit":
        return block.forward_explicit
    peer: Callable[..., torch.Tensor] = (
        F.scaled_dot_product_attention if form == "sdpa" else _compiled_flex_attention()
    )

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return peer(query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), scale=1.0).squeeze(1)

    return lambda x: block.forward_with(x, attend)


@cache
def _compiled_flex_attention() -> Callable[..., torch.Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


def measure_block(
    variant: str,
    size: str,
    *,
    training: bool,
    batch: int = 1,
    channels: int = 512,
    rounds: int = 5,
    threads: int = 2,
    device: str = "cpu",
    peers: bool = False,
    memory: bool = True,
    temperature: float = 1.0,
    precision: str = "float32",
) -> BlockCost:
    """Measure all forms of the block and plain matrix multiplies in interleaved rounds.

    Times are the best over rounds, and ratios are medians over rounds. Memory is measured on the CPU only, in two
    separate processes. A small temperature makes attention as sharp as after training, because logits of untrained
    weights differ by a few units only. In bfloat16, all forms run under autocast, and the limit is of its multiplies.
    """
    torch.set_num_threads(threads)
    shape = SIZES[size]
    forms: list[Form] = ["fused"]
    if precision != "float32":
        forms.append("float32")
    if _explicit_fits(variant, shape, batch):
        forms.append("explicit")
        if peers:
            forms.append("sdpa")  # computes the whole map on a CPU
    if peers and not training:
        forms.append("flex")  # has no backward pass on a CPU
    calls = make_calls(
        variant,
        channels,
        shape,
        forms,
        training=training,
        batch=batch,
        device=device,
        temperature=temperature,
        precision=precision,
    )
    with FlopCounterMode(display=False) as counter:
        calls["fused"]()
    flops = int(counter.get_total_flops())
    multiply = 2 * MULTIPLY**3
    count = max(1, round(flops / multiply))
    timed: dict[str, Callable[[], torch.Tensor]] = {
        **{form: _synchronised(call, device) for form, call in calls.items()},
        "stretch": _synchronised(_multiply_call(count, device, precision), device),
        "single": _synchronised(_multiply_call(1, device, precision), device),
    }
    first = {form: _seconds(timed[form]) for form in forms[1:]}  # compiles and loads libraries
    if first.get("explicit", inf) < LONGEST_CONTROL:
        timed["control"] = timed["explicit"]
    times = time_rounds(timed, rounds)
    best = {name: min(seconds) for name, seconds in times.items()}

    limit, single = flops / (count * multiply), flops / multiply  # ratio of the block's operations to those timed

    def ratio(form: str, other: str = "explicit") -> float | None:
        return paired_ratio(times[form], times[other]) if form in times and other in times else None

    def peak(form: Form) -> int | None:
        if form not in forms or device != "cpu" or not memory:
            return None
        return peak_extra_bytes(
            variant,
            channels,
            shape,
            form=form,
            training=training,
            batch=batch,
            threads=threads,
            precision=precision,
        )

    return BlockCost(
        size=size,
        batch=batch,
        variant=variant,
        training=training,
        fused_seconds=best["fused"],
        explicit_seconds=best.get("explicit"),
        sdpa_seconds=best.get("sdpa"),
        flex_seconds=best.get("flex"),
        limit_seconds=best["stretch"] * limit,
        single_limit_seconds=best["single"] * single,
        share_of_limit=paired_ratio(times["stretch"], times["fused"]) * limit,
        share_of_single_limit=paired_ratio(times["single"], times["fused"]) * single,
        time_ratio=ratio("fused"),
        control_ratio=ratio("control"),
        fused_bytes=peak("fused"),
        explicit_bytes=peak("explicit"),
        float32_seconds=best.get("float32"),
        float32_ratio=ratio("fused", "float32"),
        float32_bytes=peak("float32"),
    )


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _synchronised(call: Callable[[], torch.Tensor], device: str) -> Callable[[], torch.Tensor]:
    """Return a call that also waits for the device."""
    if torch.device(device).type == "cpu":
        return call

    def waiting() -> torch.Tensor:
        out = call()
        torch.accelerator.synchronize()
        return out

    return waiting


def _multiply_call(count: int, device: str, precision: str) -> Callable[[], torch.Tensor]:
    """Return a call that multiplies two large matrices `count` times."""
    dtype = getattr(torch, precision)
    left, right, out = (torch.randn(MULTIPLY, MULTIPLY, device=device, dtype=dtype) for _ in range(3))

    def multiply() -> torch.Tensor:
        for _ in range(count):
            torch.mm(left, right, out=out)
        return out

    return multiply


def _explicit_fits(variant: str, size: Sequence[int], batch: int = 1) -> bool:
    """Return whether three float32 maps fit in memory, as the explicit backward pass requires."""
    if not VARIANTS[variant].pairwise:
        return True  # no map
    available = available_bytes()
    return available is None or 3.5 * 4 * batch * torch.Size(size).numel() ** 2 < available


def describe_machine(threads: int, precision: str = "float32") -> str:
    """Return processor, number of threads, version of PyTorch and precision, for the caption of a table."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    counted = f"{threads} thread{'' if threads == 1 else 's'}"
    return f"{model}, {counted}, torch {torch.__version__}, {precision}"
