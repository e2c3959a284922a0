"""Fused = explicit = the paper's equation, in float64, outputs and gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import equations
from dnlnet import PRESETS, VARIANTS, NonLocalBlock
from dnlnet.attention import blocked
from dnlnet.attention.spec import Gate

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_dims = pytest.mark.parametrize("dims", [1, 2, 3])


# Small blocks, so that small maps need several; the last one is incomplete.
FORMS = {
    "the whole batch at once": {},
    "softmax kept, parts of images": {"MIN_LOGITS": 1},
    "softmax kept, several images": {"MIN_LOGITS": 1, "FORWARD_ROWS": 250, "BACKWARD_ROWS": 150},
    "softmax computed again": {"MIN_LOGITS": 1, "MAX_LOGITS": 100},
}


@contextmanager
def computed_as(form: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"FORWARD_ROWS": 7, "BACKWARD_ROWS": 5, "MIN_PADDED": 1} | FORMS[form]).items():
            patch.setattr(blocked, name, value)
        yield


@st.composite
def cases(draw: st.DrawFn) -> dict:
    preset = draw(st.sampled_from(list(PRESETS)))
    options = {}
    if draw(st.booleans()):
        options["pool"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        options["gate"] = draw(st.sampled_from(get_args(Gate)))
    if draw(st.booleans()):
        options["centring"] = draw(st.sampled_from(["channel", "sample", "none"]))
    if draw(st.booleans()):
        options["unary_scaled"] = draw(st.booleans())
    if draw(st.booleans()):
        options["values"] = "separate"
    return {
        "batch": draw(st.integers(1, 3)),
        "channels": draw(st.integers(4, 9)),
        "size": draw(st.tuples(*[st.integers(3, 6)] * 3)),
        "preset": preset,
        "options": options,
        "channels_last": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
        "form": draw(st.sampled_from(list(FORMS))),
    }


def build(variant: str, dims: int, case: dict) -> tuple[NonLocalBlock, torch.Tensor]:
    if variant in ("nl_unary", "dnl_dagger") and case["options"].get("centring") == "none":
        case["options"]["centring"] = "channel"  # without a mean these variants have no unary term and are refused
    if variant not in ("dnl_dagger", "dnl"):
        case["options"].pop("values", None)  # only two separate terms have this option
    block = NonLocalBlock(case["channels"], variant, dims, preset=case["preset"], **case["options"])
    equations.randomise(block, case["seed"])
    generator = torch.Generator().manual_seed(case["seed"])
    shape = (case["batch"], case["channels"], *case["size"][:dims])
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if case["channels_last"] and dims > 1:
        x = x.to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    return block, x


def run(forward, block: NonLocalBlock, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    x = x.detach().requires_grad_()
    out = forward(x)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad((out * weight).sum(), [x, *block.parameters()])
    return out, list(grads)


def assert_same(a, b) -> None:
    torch.testing.assert_close(a[0], b[0], rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(a[1], b[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@each_variant
@each_dims
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_fused_equals_explicit(variant: str, dims: int, case: dict) -> None:
    block, x = build(variant, dims, case)
    with computed_as(case["form"]):
        fused = run(block, block, x)
    assert_same(fused, run(block.forward_explicit, block, x))


@each_variant
@each_dims
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_fused_equals_the_equation(variant: str, dims: int, case: dict) -> None:
    block, x = build(variant, dims, case)
    with computed_as(case["form"]):
        fused = run(block, block, x)
    assert_same(fused, run(lambda x: equations.output(block, x), block, x))


def test_nonlocal_attention_is_the_softmax_of_query_times_key() -> None:
    block = equations.randomise(NonLocalBlock(6, "nl"))
    x = torch.randn(1, 6, 4, 5, dtype=torch.float64)
    tokens = x[0].flatten(1).T
    expected = (block.query(tokens) @ block.key(tokens).T).softmax(-1)
    maps = next(block.iter_attention_maps(x, rows=20))
    torch.testing.assert_close(maps.combined.flatten(2)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gate", ["scalar", "norm"])
@each_variant
@each_dims
def test_zero_gate_makes_the_block_the_identity(variant: str, dims: int, gate: str) -> None:
    block = NonLocalBlock(6, variant, dims, gate=gate)
    x = torch.randn(2, 6, *(4, 3, 5)[:dims])
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)


def test_pairwise_gate_leaves_a_separate_unary_term_alone() -> None:
    x = torch.randn(2, 6, 4, 4)
    assert not torch.equal(NonLocalBlock(6, "dnl", preset="authors")(x), x)
    assert torch.equal(NonLocalBlock(6, "nl", preset="authors")(x), x)
    assert NonLocalBlock(6, "gc", preset="authors").gamma is None


def test_weights_of_a_2d_block_load_into_a_3d_block() -> None:
    flat, deep = NonLocalBlock(6, dims=2), NonLocalBlock(6, dims=3)
    deep.load_state_dict(flat.state_dict())
    x = torch.randn(1, 6, 5, 7)
    torch.testing.assert_close(deep(x[:, :, None])[:, :, 0], flat(x))


def test_weights_of_convolutions_load() -> None:
    block, copy = NonLocalBlock(6, preset="mmseg"), NonLocalBlock(6, preset="mmseg")
    state = {k: v[..., None, None] if v.dim() == 2 else v for k, v in block.state_dict().items()}
    copy.load_state_dict(state)
    x = torch.randn(2, 6, 5, 7)
    torch.testing.assert_close(copy.eval()(x), block.eval()(x))


def test_tied_projections_are_one_layer_with_two_names() -> None:
    """Compare with softmax((q_i - mu).q_j), the equation for q = k, in float64."""
    torch.manual_seed(0)
    block = NonLocalBlock(8, "nl_pairwise").double()
    block.key = block.query
    torch.nn.init.normal_(block.query.weight)
    x = torch.randn(2, 8, 3, 4, dtype=torch.float64, requires_grad=True)
    tokens = x.flatten(2).mT
    q, v = tokens @ block.query.weight.mT + block.query.bias, tokens @ block.value.weight.mT
    expected = tokens + ((q - q.mean(1, keepdim=True)) @ q.mT).softmax(dim=-1) @ v
    torch.testing.assert_close(block(x).flatten(2).mT, expected)
    state = {name: value[..., None, None] for name, value in block.state_dict().items() if name.endswith("weight")}
    block.load_state_dict(state, strict=False)


@pytest.mark.parametrize(
    ("variant", "gate", "expected"),
    [
        ("nl", "scalar", 524_801),
        ("dnl", "scalar", 525_314),
        ("nl", "none", 2 * 512**2 + 512),
        ("dnl", "none", (2 * 512 + 1) * 512 + 512 + 1),
        ("nl_pairwise", "none", 2 * 512**2 + 512),
        ("nl_unary", "none", 2 * 512**2 + 512),
        ("dnl_star", "none", (2 * 512 + 1) * 512 + 512 + 1),
        ("dnl_dagger", "none", 2 * 512**2 + 512),
        ("gc", "none", 512**2 + 512 + 1),
    ],
)
def test_parameter_counts(variant: str, gate: str, expected: int) -> None:
    """2C^2 for the matrices of NL, (2C+1)C for DNL; biases on query, key (C/2 each) and saliency (1); gamma (1)."""
    assert sum(p.numel() for p in NonLocalBlock(512, variant, gate=gate).parameters()) == expected


def test_parameter_counts_of_separate_values() -> None:
    """The unary term's own W_v adds C^2, or (C + 1) C/2 with bias and half the width."""
    for options, more in (({}, 512**2), ({"preset": "mmseg"}, 513 * 256)):
        shared, separate = (
            sum(p.numel() for p in NonLocalBlock(512, "dnl", values=values, **options).parameters())
            for values in ("shared", "separate")
        )
        assert separate - shared == more


@pytest.mark.parametrize("variant", ["nl_unary", "gc"])
def test_a_pairwise_gate_leaves_a_unary_term_alone(variant: str) -> None:
    """The release multiplies only the pairwise output by gamma, which starts at 0."""
    block = NonLocalBlock(4, variant, gate="scalar_pairwise").double()
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    maps = block.attention_maps(x, [(0, 0)])
    unary = maps.unary.flatten(1)[:, None] @ block.value(x.flatten(2).mT)  # (B, 1, C)
    torch.testing.assert_close(block(x), x + unary.mT[..., None], rtol=0, atol=1e-12)
    torch.testing.assert_close(block.forward_explicit(x), block(x), rtol=0, atol=1e-12)
