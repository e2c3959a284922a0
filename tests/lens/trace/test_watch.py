"""Recorded attention equals the model's own in every library, and recording changes nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.lens.trace.capture import capture
from dnlnet.lens.trace.recorded import RecordedAttention
from dnlnet.lens.trace.watch import watch_attention
from families import FAMILIES, family, random, unchanged

# transformers computes explicit softmaxes in single precision
TOLERANCE = {"rtol": 0, "atol": 2e-7}
EXACT = {"rtol": 0, "atol": 1e-14}


def only(model: nn.Module, *args: object, **named: object) -> RecordedAttention:
    """Return the single attention of a model."""
    with torch.no_grad(), capture(model) as attention:
        model(*args, **named)
    (recorded,) = attention.values()
    assert isinstance(recorded, RecordedAttention)
    return recorded


# ---- families


@pytest.mark.parametrize("name", FAMILIES)
def test_recorded_weights_equal_those_of_the_library(name: str) -> None:
    found = family(name)
    expected = found.own()
    with capture(found.network) as attention:
        found.run()
    assert len(attention) == len(expected) >= 2
    for recorded, own in zip(attention.values(), expected, strict=True):
        assert isinstance(recorded, RecordedAttention)
        tolerance = TOLERANCE if name.startswith("transformers") else EXACT
        weights = recorded.weights()
        assert own.std() > 1e-4, "a uniform attention would prove nothing"
        torch.testing.assert_close(weights, own.reshape(weights.shape).to(weights.dtype), **tolerance)
        rows = torch.tensor([1, 0])
        torch.testing.assert_close(recorded.weights(rows), weights[:, :, rows], **EXACT)


@pytest.mark.parametrize("name", FAMILIES)
def test_recording_keeps_every_bit_of_the_output_and_leaves_nothing_behind(name: str) -> None:
    found = family(name)
    expected = found.run()
    with unchanged(found.network), capture(found.network):
        output = found.run()
    assert torch.equal(output, expected)
    assert torch.equal(found.run(), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_is_the_softmax_of_the_sum_of_its_two_terms(name: str) -> None:
    """Check Eq. 5 for every head of every layer; bias and mask are added to the sum."""
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    for recorded in attention.values():
        assert isinstance(recorded, RecordedAttention)
        layout = recorded.require_layout()
        if layout.places is not None:
            continue  # inside windows: see test_windows.py
        for head in range(recorded.heads):
            terms = recorded.terms(head, image=1)
            rows = torch.arange(terms.pairwise.query.shape[1])
            both = terms.pairwise.query @ terms.pairwise.key.mT + terms.unary.query @ terms.unary.key.mT
            whole = recorded.weights()[1, head, layout.prefix :, layout.key_prefix :]
            if not found.biased:
                expected = whole / whole.sum(dim=-1, keepdim=True)
                torch.testing.assert_close(both.softmax(dim=-1)[0], expected, **EXACT)
            combined = terms.maps_of_rows(rows).combined[0].flatten(1)
            torch.testing.assert_close(combined, whole / whole.sum(dim=-1, keepdim=True), **EXACT)


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_and_keys_are_kept_but_no_map(name: str) -> None:
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    for recorded in attention.values():
        assert isinstance(recorded, RecordedAttention)
        seen = recorded.call
        held = [x for step in seen.steps for x in tensors_in(step)]
        assert seen.query.is_contiguous()
        assert seen.query.untyped_storage().nbytes() == seen.query.numel() * seen.query.element_size()
        assert seen.key.untyped_storage().nbytes() == seen.key.numel() * seen.key.element_size()
        if not found.biased:
            assert all(x.numel() <= recorded.heads for x in held)
        assert not any(x.requires_grad for x in (seen.query, seen.key, *held))


def tensors_in(step: object) -> list[Tensor]:
    """Return the tensors that a function closes over."""
    cells = getattr(step, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, Tensor)]


# ---- nn.MultiheadAttention


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["self", "cross", "padding", "mask", "float mask", "both masks"])
def test_multi_head_attention(kind: str, batch_first: bool, need_weights: bool) -> None:
    torch.manual_seed(0)
    width = 8 if kind == "cross" else 12
    layer = nn.MultiheadAttention(12, 3, batch_first=batch_first, kdim=width, vdim=width).double().eval()
    query = random(2, 5, 12)
    key = random(2, 7, 8, seed=1) if kind == "cross" else query
    masks: dict[str, Tensor] = {}
    if kind in ("padding", "both masks"):
        masks["key_padding_mask"] = torch.tensor([[False] * 5, [False, False, False, True, True]])
    if kind in ("mask", "both masks"):
        masks["attn_mask"] = torch.ones(5, 5, dtype=torch.bool).triu(1)
    if kind == "float mask":
        masks["attn_mask"] = random(5, 5, seed=2)
    query, key = (x if batch_first else x.transpose(0, 1) for x in (query, key))
    with torch.no_grad():
        own = layer(query, key, key, need_weights=True, average_attn_weights=False, **masks)[1]
    recorded = only(layer, query, key, key, need_weights=need_weights, **masks)
    torch.testing.assert_close(recorded.weights(), own, **EXACT)
    assert recorded.call.query.shape == (2, 3, 5, 4)
    if kind in ("padding", "both masks"):  # a key hidden from every query has zero share in every map
        for image, padded in enumerate((False, True)):
            maps = recorded.maps([4], image=image)
            for part in (maps.pairwise, maps.unary, maps.combined):
                assert bool((part[..., 3:] == 0).all()) == padded


@pytest.mark.parametrize("padded", [False, True])
def test_an_encoder_layer_is_recorded_without_its_native_fast_path(padded: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).double().eval()
    x = random(2, 5, 12)
    mask = torch.tensor([[False] * 5, [False, False, False, True, True]]) if padded else None
    with torch.no_grad():
        torch.backends.mha.set_fastpath_enabled(False)
        expected = layer(x, src_key_padding_mask=mask)
        torch.backends.mha.set_fastpath_enabled(True)
        with unchanged(layer), capture(layer) as attention:
            output = layer(x, src_key_padding_mask=mask)
        own = layer.self_attn(x, x, x, key_padding_mask=mask, average_attn_weights=False)[1]
    assert torch.equal(output, expected)
    assert list(attention) == ["self_attn"]
    torch.testing.assert_close(attention["self_attn"].weights(), own, **EXACT)


def test_a_disabled_fast_path_stays_disabled() -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with capture(layer), torch.no_grad():
            layer(torch.randn(2, 5, 12))
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_an_exception_leaves_nothing_behind() -> None:
    network = nn.Sequential(nn.TransformerEncoderLayer(12, 3, 24, batch_first=True), nn.Linear(7, 2)).eval()

    def fail() -> None:
        with capture(network):
            network(torch.randn(2, 5, 12))

    with unchanged(network), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fail()
    assert only(network[0], torch.randn(2, 5, 12)).heads == 3


def test_a_failing_callback_leaves_nothing_behind() -> None:
    layer = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    x = torch.randn(1, 5, 12)

    def fail(_: object) -> None:
        raise ValueError("enough")

    with unchanged(layer), pytest.raises(ValueError, match="enough"), watch_attention(layer, fail):
        layer(x, x, x)


# ---- explicit attention


class Written(nn.Module):
    """Explicit attention with three heads, in one of several forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form = form
        self.heads = 3
        self.attend = nn.Softmax(dim=-1)
        self.qkv = nn.Linear(12, 36, bias=False)
        self.bias = nn.Parameter(torch.randn(3, 5, 5))
        self.scales = nn.Parameter(torch.rand(3, 1, 1) + 0.5)
        self.weights = torch.empty(0)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 3, 4).permute(2, 0, 3, 1, 4)
        weights = WRITTEN[self.form](self, q, k)
        self.weights = weights.detach().reshape(*q.shape[:-1], k.shape[-2])
        return self.weights @ v


def _in_place(m: Written, q: Tensor, k: Tensor) -> Tensor:
    logits = q @ k.transpose(-2, -1)
    logits *= 0.5
    logits += m.bias
    logits.masked_fill_(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    return logits.softmax(-1)


WRITTEN = {
    # vit-pytorch
    "product, scale, module": lambda m, q, k: m.attend(torch.matmul(q, k.transpose(-1, -2)) * 0.5),
    "scale first": lambda m, q, k: F.softmax((q * 0.5) @ k.mT, dim=3),
    "scale in front": lambda m, q, k: torch.softmax(0.5 * (q @ k.mT), -1),
    "divided": lambda m, q, k: ((q @ k.mT) / 2).softmax(dim=-1),
    "divided by a tensor": lambda m, q, k: torch.div(q @ k.mT, torch.tensor(2.0)).softmax(dim=-1),
    "einsum": lambda m, q, k: (torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.5).softmax(dim=-1),
    "einsum, heads after tokens": lambda m, q, k: torch.einsum(
        "bqhd,bkhd->bhqk", q.transpose(1, 2) * 0.5, k.transpose(1, 2)
    ).softmax(dim=-1),
    "einsum, key first": lambda m, q, k: torch.einsum("bhjd,bhid->bhij", k, q).softmax(dim=-1),
    "einsum with an ellipsis": lambda m, q, k: torch.einsum("...id,...jd->...ij", q, k).softmax(dim=-1),
    "heads in the batch": lambda m, q, k: torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).softmax(dim=-1),
    "heads in the batch, masked": lambda m, q, k: torch.baddbmm(
        torch.zeros(6, 5, 5, dtype=q.dtype).index_fill(2, torch.tensor([3]), -torch.inf),
        q.flatten(0, 1),
        k.flatten(0, 1).mT,
    ).softmax(dim=-1),
    "a scale for each head": lambda m, q, k: ((q @ k.mT) * m.scales).softmax(dim=-1),
    "bias": lambda m, q, k: (q @ k.mT + m.bias).softmax(dim=-1),
    "bias in front, scaled after": lambda m, q, k: ((m.bias + q @ k.mT) * 0.5).softmax(dim=-1),
    "bias taken away": lambda m, q, k: (q @ k.mT - m.bias).softmax(dim=-1),
    "largest taken away": lambda m, q, k: stable(q @ k.mT).softmax(dim=-1),
    "clamped": lambda m, q, k: torch.clamp(q @ k.mT, min=-5e4, max=5e4).softmax(dim=-1),
    "added with a factor": lambda m, q, k: torch.add(q @ k.mT, m.bias, alpha=2).softmax(dim=-1),
    "filled": lambda m, q, k: (
        (q @ k.mT).masked_fill(value=-1e9, mask=torch.ones(5, 5, dtype=torch.bool).triu(1)).softmax(dim=-1)
    ),
    "where": lambda m, q, k: torch.where(
        torch.ones(5, 5, dtype=torch.bool).tril(), q @ k.mT, torch.tensor(-1e9, dtype=q.dtype)
    ).softmax(dim=-1),
    "in place": _in_place,
    "heads apart after the product, masked": lambda m, q, k: (
        torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT)
        .view(2, 3, 5, 5)
        .masked_fill(torch.arange(5) == 3, -torch.inf)
        .view(6, 5, 5)
        .softmax(dim=-1)
    ),
    "by windows, masked": lambda m, q, k: (
        (q @ k.mT)
        .view(1, 2, 3, 5, 5)
        .masked_fill((torch.arange(5) == 3).expand(2, 1, 5, 5), -torch.inf)
        .view(2, 3, 5, 5)
        .softmax(dim=-1)
    ),
    "wide softmax": lambda m, q, k: F.softmax((q @ k.mT).float(), dim=-1, dtype=torch.float64).to(q.dtype),
    "by windows": lambda m, q, k: ((q @ k.mT).view(1, 2, 3, 5, 5) + m.bias).view(2, 3, 5, 5).softmax(dim=-1),
}


def stable(logits: Tensor) -> Tensor:
    return logits - logits.amax(dim=-1, keepdim=True).detach()


@pytest.mark.parametrize("form", WRITTEN)
def test_explicit_attention_is_recorded(form: str) -> None:
    model, x = Written(form), random(2, 5, 12)
    expected = model(x)
    own = model.weights
    with unchanged(model), capture(model) as attention:
        output = model(x)
    assert torch.equal(output, expected)
    (recorded,) = attention.values()
    tolerance = TOLERANCE if form == "wide softmax" else EXACT
    torch.testing.assert_close(recorded.weights(), own, **tolerance)
    terms = recorded.terms("all", image=1)
    both = terms.pairwise.query @ terms.pairwise.key.mT + terms.unary.query @ terms.unary.key.mT
    if not {"bias", "filled", "where", "masked", "place", "factor", "windows"} & set(form.replace(",", "").split()):
        torch.testing.assert_close(both.softmax(dim=-1), own[1], **tolerance)
    assert all(
        x.numel() <= 5 * 5 * 6 and not x.requires_grad for step in recorded.call.steps for x in tensors_in(step)
    )


@pytest.mark.parametrize("form", [form for form in WRITTEN if form.endswith("masked")])
def test_a_key_masked_in_explicit_attention_has_zero_share_in_every_map(form: str) -> None:
    maps = only(Written(form), random(2, 5, 12)).maps([0, 1])
    for part in (maps.pairwise, maps.unary, maps.combined):
        assert (part[..., 3] == 0).all()
        assert (part[..., 2] > 0).all()


class NotAttention(nn.Module):
    """Softmaxes without a product, or over the queries."""

    def forward(self, x: Tensor) -> Tensor:
        products = x @ x.mT
        return (products.relu().softmax(dim=-1) + products.softmax(dim=-2)) @ x.softmax(dim=-1)


def test_other_softmaxes_are_not_mistaken_for_attention() -> None:
    model = NotAttention()
    with pytest.warns(UserWarning, match="no attention was seen"), capture(model) as attention:
        model(random(1, 5, 4))
    assert not attention


# ---- fused attention


class Fused(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, tokens: tuple[Tensor, Tensor]) -> Tensor:
        q, k = tokens
        return F.scaled_dot_product_attention(q, k, k, **self.options)


def weights_of(model: nn.Module, q: Tensor, k: Tensor) -> Tensor:
    """Return the fused kernel's attention: its output with the identity matrix as values."""
    values = torch.eye(k.shape[-2], dtype=k.dtype).expand(*k.shape[:-1], -1)
    with torch.no_grad():
        return F.scaled_dot_product_attention(q, k, values, **model.options)


FUSED = {
    "plain": {},
    "scaled": {"scale": 0.1},
    "causal": {"is_causal": True},
    "mask": {"attn_mask": torch.ones(5, 7, dtype=torch.bool).tril(2)},
    "bias": {"attn_mask": random(3, 5, 7)},
    "mask of keys": {"attn_mask": torch.tensor([True, True, False, True, True, True, False])[None]},
}


@pytest.mark.parametrize("form", FUSED)
def test_fused_attention_equals_the_kernel(form: str) -> None:
    model, q, k = Fused(**FUSED[form]), random(2, 3, 5, 4), random(2, 3, 7, 4, seed=1)
    recorded = only(model, (q, k))
    torch.testing.assert_close(recorded.weights(), weights_of(model, q, k), **EXACT)
    rows = torch.tensor([4, 1])
    torch.testing.assert_close(recorded.weights(rows), weights_of(model, q, k)[:, :, rows], **EXACT)


@pytest.mark.parametrize(("form", "visible"), [("causal", [0, 1, 2, 3, 4]), ("mask of keys", [0, 1, 3, 4, 5])])
def test_a_key_hidden_from_every_query_has_zero_share_in_every_map(form: str, visible: list[int]) -> None:
    maps = only(Fused(**FUSED[form]), (random(2, 3, 5, 4), random(2, 3, 7, 4, seed=1))).maps([4])
    for part in (maps.pairwise, maps.unary):
        assert (part > 0).any(dim=0).flatten().nonzero().flatten().tolist() == visible


def test_causal_attention_keeps_no_mask() -> None:
    recorded = only(Fused(is_causal=True), (random(2, 3, 50, 4), random(2, 3, 50, 4, seed=1)))
    assert not [x for step in recorded.call.steps for x in tensors_in(step)]


def test_a_learnable_bias_is_kept_without_its_graph() -> None:
    bias = random(5, 7).requires_grad_()
    recorded = only(Fused(attn_mask=bias * 2), (random(2, 3, 5, 4), random(2, 3, 7, 4, seed=1)))
    assert not any(x.requires_grad for step in recorded.call.steps for x in tensors_in(step))


def test_heads_that_share_keys() -> None:
    model, q, k = Fused(enable_gqa=True), random(2, 6, 5, 4), random(2, 3, 7, 4, seed=1)
    recorded = only(model, (q, k))
    torch.testing.assert_close(recorded.weights(), weights_of(model, q, k), **EXACT)
    assert recorded.call.key.shape == k.shape
    assert recorded.maps([1]).pairwise.shape == (6, 1, 7)
    torch.testing.assert_close(recorded.maps([1], head=5).combined[0, 0], weights_of(model, q, k)[0, 5, 1], **EXACT)


# ---- names


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Fused()

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(x, x, x)
        return self.inner((F.scaled_dot_product_attention(2 * x, mixed, mixed), x))


def test_two_attentions_in_one_module_are_numbered() -> None:
    model, x = Twice(), random(1, 2, 5, 4)
    for _ in range(2):  # counted in each run
        with capture(model) as attention:
            model(x)
            model(x)
        assert list(attention) == ["attention", "attention#2", "inner"]
    assert torch.equal(attention["attention#2"].call.query, 2 * x)


def test_only_selected_layers_are_kept() -> None:
    model = Twice()
    with capture(model, layers=["inner"]) as attention:
        model(random(1, 2, 5, 4))
    assert list(attention) == ["inner"]
