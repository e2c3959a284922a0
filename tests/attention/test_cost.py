"""Promised cost: no N x M tensor, forward or backward, and the FLOPs of the formula."""

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import blocked
from dnlnet.attention.operator import attend
from dnlnet.bench.memory import peak_extra_bytes


def largest(forward, x: torch.Tensor) -> LargestTensor:
    with LargestTensor() as recorder:
        forward(x).sum().backward()
    return recorder


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [(400,), (16, 25), (4, 10, 10)])
def test_no_tensor_has_the_size_of_queries_times_keys(
    variant: str, size: tuple[int, ...], pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "FORWARD_ROWS", 32)
    monkeypatch.setattr(blocked, "BACKWARD_ROWS", 32)
    monkeypatch.setattr(blocked, "MIN_LOGITS", 1)
    monkeypatch.setattr(blocked, "MAX_LOGITS", 32 * 400)
    block = NonLocalBlock(4, variant, dims=len(size), pool=pool)
    x = torch.randn(2, 4, *size, requires_grad=True)
    recorder = largest(block, x)
    if block.variant.pairwise:
        assert {"dnlnet.attend.default", "dnlnet.attend_backward.default"} <= recorder.operators
    keys = block._pool(x)[0, 0].numel()
    assert recorder.elements <= 32 * (keys + 16)
    assert recorder.elements < 400 * keys / 4


@pytest.mark.parametrize("least", [1, 2**20])
@pytest.mark.parametrize(("batch", "kept"), [(1, True), (2, True), (3, False), (8, False)])
@pytest.mark.parametrize("size", [(10, 10), (4, 5, 5)])
def test_the_softmax_is_kept_only_if_the_whole_batch_fits_the_buffer(
    size: tuple[int, ...], batch: int, kept: bool, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block saves no more than the buffer for its backward pass, whatever the batch and map size."""
    monkeypatch.setattr(blocked, "MIN_LOGITS", least)
    monkeypatch.setattr(blocked, "MAX_LOGITS", 25_000)
    saved: list[int] = []

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.untyped_storage().nbytes() // tensor.element_size())
        return tensor

    block = NonLocalBlock(4, dims=len(size))
    x = torch.randn(batch, 4, *size, requires_grad=True)
    with LargestTensor() as recorder:
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            out = block(x)
        out.sum().backward()
    assert recorder.elements <= 25_000
    assert max(saved) == (batch * 100 * 100 if kept else x.numel())


@pytest.mark.parametrize(
    ("scale", "dtype", "side", "called"),
    [
        (1.0, torch.float32, 8, False),
        (1.0, torch.float32, 19, False),
        (1.0, torch.float32, 20, True),  # more than 2^17 logits
        (1.0, torch.float16, 8, True),
        (1e3, torch.float32, 8, True),  # subnormal weights
        (1e30, torch.float32, 8, True),  # logits overflow
    ],
)
def test_a_small_attention_is_computed_without_the_operator(
    scale: float, dtype: torch.dtype, side: int, called: bool
) -> None:
    query, value = (torch.randn(1, side**2, width, dtype=dtype) for width in (4, 5))
    with LargestTensor() as recorder:
        out = attend(scale * query, query, value)
    assert ("dnlnet.attend.default" in recorder.operators) == called
    assert out.isfinite().all()


def test_the_recorder_sees_the_map_of_the_explicit_form() -> None:
    block = NonLocalBlock(4)
    x = torch.randn(1, 4, 20, 20, requires_grad=True)
    assert largest(block.forward_explicit, x).elements >= 400 * 400


def test_process_memory_stays_below_one_map() -> None:
    one_map = 4 * (72 * 72) ** 2
    fused = peak_extra_bytes("dnl", 16, (72, 72), form="fused", training=True, threads=1)
    explicit = peak_extra_bytes("dnl", 16, (72, 72), form="explicit", training=True, threads=1)
    assert explicit > 2 * one_map
    assert fused < one_map


@pytest.mark.parametrize(("kept", "products"), [(True, 2), (False, 3)])
def test_flops_equal_the_papers_formula(kept: bool, products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        monkeypatch.setattr(blocked, "MAX_LOGITS", 1)
    C, HW = 32, 12 * 10
    block = NonLocalBlock(C, "nl")
    x = torch.randn(1, C, 12, 10, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        out = block(x)
    assert counter.get_total_flops() == 2 * (2 * C**2 * HW + 1.5 * C * HW**2)
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    attention = 2 * HW**2 * (products * C // 2 + 2 * C)  # dq, dk, and q.k unless kept; dv, dP
    projections = 2 * 2 * 2 * C**2 * HW
    assert counter.get_total_flops() == attention + projections


def test_a_unary_term_alone_uses_one_query_and_one_value_per_image() -> None:
    C, HW = 32, 12 * 10
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        NonLocalBlock(C, "gc")(torch.randn(1, C, 12, 10))
    saliency, weighted_sum, value = C * HW, C * HW, C**2
    assert counter.get_total_flops() == 2 * (saliency + HW + weighted_sum + value)


def test_the_first_call_does_not_wait_for_the_compiler() -> None:
    """Importing the compiler takes seconds, which every command would pay."""
    code = (
        "import sys, torch, dnlnet; dnlnet.NonLocalBlock(8)(torch.randn(1, 8, 4, 4)).sum().backward();"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
