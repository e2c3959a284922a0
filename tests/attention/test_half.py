"""Attention in bfloat16 on processors with instructions for it. On others, PyTorch emulates these small products."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor

from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import blocked, half
from dnlnet.attention.half import has_bfloat16 as cached_has_bfloat16
from dnlnet.attention.operator import attend, attend_explicit

Results = tuple[Tensor, ...]
# Small blocks, so that small maps need several; the last one is incomplete.
FORMS = {
    "the whole batch at once": {},
    "parts of images": {"MIN_LOGITS": 1, "FORWARD_ROWS": 7, "BACKWARD_ROWS": 5},
    "several images": {"MIN_LOGITS": 1, "FORWARD_ROWS": 40, "BACKWARD_ROWS": 40},
}
each_form = pytest.mark.parametrize("form", FORMS)
each_kept = pytest.mark.parametrize("keep", [False, True], ids=["computed again", "kept"])


@pytest.fixture(autouse=True)
def instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "has_bfloat16", lambda: True)


def operands(
    dtype: torch.dtype, positions: int = 19, keys: int = 70, scale: float = 1.0, batch: int = 3
) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, positions, 4), (batch, keys, 4), (batch, keys, 6)
    query, key, value = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return tuple(t.bfloat16().to(dtype) for t in (scale * query, key, value))  # the same numbers in each precision


@each_form
@each_kept
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("keys", [1, 64, 70])
def test_the_algorithm_equals_the_definition_in_float64(
    keys: int, columns: bool, keep: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in FORMS[form].items():
        monkeypatch.setattr(half, name, number)
    inputs = [t.requires_grad_() for t in operands(torch.float64, keys=keys)]
    expected = attend_explicit(*inputs)
    grad = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected_grads = torch.autograd.grad(expected, inputs, grad)
    detached = [t.detach() for t in inputs]
    out, softmax = half.attend(*detached, keep, columns)
    assert (out.stride(1) == 1) == columns
    assert (softmax.numel() > 0) == keep
    torch.testing.assert_close(out, expected.detach(), rtol=1e-12, atol=1e-12)
    grads = half.attend_backward(grad, *detached, softmax)
    torch.testing.assert_close(grads, expected_grads, rtol=1e-11, atol=1e-11)


@each_form
@each_kept
def test_large_maps_and_small_ones_agree_in_bfloat16(keep: bool, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the last digit of 8 bits is 2^-9; weights, gradients of logits, sums and results are rounded to it."""
    for name, number in FORMS[form].items():
        monkeypatch.setattr(half, name, number)
    exact = [t.requires_grad_() for t in operands(torch.float64)]
    grad = torch.ones(3, 19, 6, dtype=torch.float64)
    expected = attend_explicit(*exact)
    expected_grads = torch.autograd.grad(expected, exact, grad)
    inputs = operands(torch.bfloat16)
    out, softmax = half.attend(*inputs, keep)
    grads = half.attend_backward(grad.bfloat16(), *inputs, softmax)
    for ours, reference in zip((out, *grads), (expected.detach(), *expected_grads), strict=True):
        assert ours.dtype == torch.bfloat16
        assert ours.is_contiguous()
        assert (ours.double() - reference).norm() < 2**-7 * reference.norm()


def results(block: NonLocalBlock, x: Tensor, forward: Callable[[Tensor], Tensor], autocast: bool) -> Results:
    """Return what the block adds to x, and all gradients."""
    x = x.detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        out = forward(x)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    grads = torch.autograd.grad(out, [x, *block.parameters()], upstream)
    return (out - x).detach(), grads[0] - upstream, *grads[1:]


# The bounds of docs/block.md for the output and the gradients, which round once more where blocks are added up.
BOUNDS = 1.02, 1.2


@pytest.mark.parametrize("scale", [0.2, 1.0, 10.0, 50.0], ids=["flat", "new", "trained", "sharp"])
@pytest.mark.parametrize("bias", [0.0, 2.0])
@pytest.mark.parametrize("variant", [name for name, row in VARIANTS.items() if row.pairwise])
def test_the_error_is_at_most_that_of_the_explicit_form(
    variant: str, bias: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the distances to float64 of the fused and the explicit block, both under autocast."""
    monkeypatch.setattr(half, "MIN_LOGITS", 1)  # the operator, in several blocks
    torch.manual_seed(0)
    block = NonLocalBlock(64, variant, temperature=1 / scale)
    torch.nn.init.constant_(block.key.bias, bias)
    torch.nn.init.normal_(block.value.weight, std=0.1)
    x = torch.randn(1, 64, 25, 40).relu()
    wide = deepcopy(block).double()
    exact = results(wide, x.double(), wide.forward_explicit, autocast=False)
    fused, explicit = (results(block, x, form, autocast=True) for form in (block, block.forward_explicit))
    for number, (ours, theirs, reference) in enumerate(zip(fused, explicit, exact, strict=True)):
        error, allowed = ((found.double() - reference).norm() for found in (ours, theirs))
        zero = reference.norm() < 1e-9 * exact[0].norm()  # gradients that vanish, such as that of the key's bias
        assert zero or error <= BOUNDS[number > 0] * allowed


def test_logits_of_hundreds_are_almost_as_good_as_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's mean moves all logits of a row by hundreds, where bfloat16 has steps of 1 or 2."""
    monkeypatch.setattr(half, "MIN_LOGITS", 1)
    query, key, value = (t[:1] for t in operands(torch.float64, 500, 900))
    inputs = [t.bfloat16() for t in (query, key + 100, value)]
    exact = attend_explicit(*(t.double() for t in inputs))
    logits = torch.bmm(inputs[0].float(), inputs[1].float().mT)
    in_float32 = logits.softmax(dim=-1).bfloat16() @ inputs[2]
    ours, theirs, explicit = (
        float((out.double() - exact).norm() / exact.norm())
        for out in (attend(*inputs), in_float32, attend_explicit(*inputs))
    )
    assert ours < 2 * theirs < explicit / 20


@pytest.mark.parametrize("scale", [1e18, 1e30])
def test_huge_operands_give_finite_outputs_and_gradients(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for least in (1, 2**20):
        monkeypatch.setattr(half, "MIN_LOGITS", least)
        query, key, value = (t.requires_grad_() for t in operands(torch.bfloat16))
        out = attend(scale * query, scale * key, value)
        out.sum().backward()
        assert out.isfinite().all()
        assert value.grad.isfinite().all()


def test_keys_that_fill_up_a_row_get_no_weight_beside_huge_logits() -> None:
    """The rounded shift may exceed all logits of a row by far."""
    query, key, value = operands(torch.bfloat16, keys=33)
    out, softmax = half.attend(1e17 * query, 1e17 * key, value, keep=True)
    assert (softmax[..., 33:] == 0).all()
    torch.testing.assert_close(softmax.float().sum(dim=-1), torch.ones(3, 19), rtol=2**-6, atol=0)
    assert out.isfinite().all()


@pytest.fixture
def computed_in_half(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Types that the bfloat16 path was called with."""
    seen: list[torch.dtype] = []

    def noted(query: Tensor, *others: object) -> tuple[Tensor, Tensor]:
        seen.append(query.dtype)
        return compute(query, *others)

    compute = half.attend
    monkeypatch.setattr(half, "attend", noted)
    monkeypatch.setattr(half, "MIN_LOGITS", 1)
    return seen


@pytest.mark.parametrize("context", ["autocast", "bfloat16", "compiled", "exported"])
def test_every_way_to_bfloat16_uses_it(context: str, computed_in_half: list[torch.dtype]) -> None:
    torch.manual_seed(0)
    block, x = NonLocalBlock(8).eval(), torch.randn(1, 8, 5, 6)
    expected = block.forward_explicit(x)
    if context != "autocast":
        block, x = block.bfloat16(), x.bfloat16()
    forward: Callable[[Tensor], Tensor] = block
    if context == "compiled":
        forward = torch.compile(block, backend="aot_eager")
    if context == "exported":
        forward = torch.export.export(block, (x,)).module()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=context == "autocast"):
        out = forward(x)
    assert computed_in_half
    assert set(computed_in_half) == {torch.bfloat16}
    torch.testing.assert_close(out.float(), expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("missing", ["instructions", "softmax backward"])
def test_otherwise_bfloat16_is_computed_in_float32(
    missing: str, computed_in_half: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "instructions":
        monkeypatch.setattr(half, "has_bfloat16", lambda: False)
    else:
        monkeypatch.setattr(half, "_softmax_backward", None)
    inputs = [t.requires_grad_() for t in operands(torch.bfloat16)]
    out = attend(*inputs)
    out.sum().backward()
    exact = attend_explicit(*(t.float() for t in inputs))
    assert not computed_in_half
    torch.testing.assert_close(out, exact.bfloat16(), rtol=2**-8, atol=2**-10)


def test_float16_and_mixed_types_are_computed_in_float32(computed_in_half: list[torch.dtype]) -> None:
    query, key, value = operands(torch.bfloat16)
    attend(query, key, value.float())
    attend(*(t.half() for t in (query, key, value)))
    assert not computed_in_half


def test_instructions_are_those_that_pytorch_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16 = cached_has_bfloat16.__wrapped__
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for capabilities, expected in (
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"bf16": True, "architecture": "aarch64"}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        assert has_bfloat16() == expected
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not has_bfloat16()
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not has_bfloat16()


def test_pytorchs_own_checks_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tuple(t.requires_grad_() for t in operands(torch.bfloat16, 5, 7))
    checks = partial(
        torch.library.opcheck, test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
    )
    checks(torch.ops.dnlnet.attend.default, inputs)
    checks(torch.ops.dnlnet.attend.default, inputs, {"keep": True, "columns": True})


def test_no_tensor_is_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"MIN_LOGITS": 1, "FORWARD_ROWS": 16, "BACKWARD_ROWS": 16}.items():
        monkeypatch.setattr(half, name, number)
    monkeypatch.setattr(blocked, "MAX_LOGITS", 20_000)
    x = torch.randn(1, 4, 30, 40, requires_grad=True)
    block = NonLocalBlock(4)
    with LargestTensor() as recorder:
        with torch.autocast("cpu", torch.bfloat16):
            out = block(x)
        out.sum().backward()
    assert recorder.elements <= 16 * half.padded_keys(1200)


def test_sampled_keys_are_distinct_and_spread_over_the_map() -> None:
    """With steps of a fixed length, a map of that width would give one column."""
    for width in (16, 32, 33, 64, 97):
        key = torch.arange(width * width, dtype=torch.float64).view(1, -1, 1)
        sample = half.sample_keys(key).flatten()
        assert len(sample) == max(64, width * width // 32)
        assert len(sample.unique()) > 0.9 * len(sample)
        columns = sample.remainder(width).div(width / 8).floor()  # eighths of the map
        assert len(columns.unique()) == 8
