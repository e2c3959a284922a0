import pytest
import torch
from torch import Tensor, nn

import dnlnet
import equations
from dnlnet import VARIANTS, NonLocalBlock, ablate, capture
from dnlnet.deployment.portable_attention import portable
from dnlnet.lens.measure.ablate import TERMS
from families import FAMILIES, family, random, unchanged

EXACT = {"rtol": 0, "atol": 1e-13}


# ---- every family


@pytest.mark.parametrize("name", FAMILIES)
def test_ablating_nothing_changes_nothing(name: str) -> None:
    found = family(name)
    expected = found.run()
    for nothing in ({"heads": []}, {"layers": []}):
        with unchanged(found.network), ablate(found.network, "both", **nothing):
            assert torch.equal(found.run(), expected)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("term", TERMS)
def test_ablated_models_attend_by_the_other_term_and_are_restored(name: str, term: str) -> None:
    found = family(name)
    expected = found.run()
    with unchanged(found.network), capture(found.network) as attention, ablate(found.network, term):
        output = found.run()
    assert not torch.equal(output, expected)
    assert torch.equal(found.run(), expected)
    for recorded in attention.values():
        query = recorded.call.query
        if term == "unary":
            torch.testing.assert_close(query.mean(dim=-2), torch.zeros_like(query[..., 0, :]), **EXACT)
        else:
            assert torch.equal(query, query[..., :1, :].expand_as(query))
        if term == "both":
            assert not query.any()


@pytest.mark.parametrize("name", ["timm Swin", "timm ViT", "torchvision ViT"])
def test_fused_and_explicit_attention_lose_the_same(name: str) -> None:
    """Explicit attention recomputes its logits from other queries."""
    found = family(name)
    layers = [module for module in found.network.modules() if hasattr(module, "fused_attn")]
    if name == "torchvision ViT":  # attention is explicit if weights are requested
        hook = [
            module.register_forward_pre_hook(
                lambda _, args, named: (args, {**named, "need_weights": True}), with_kwargs=True
            )
            for module in found.network.modules()
            if isinstance(module, nn.MultiheadAttention)
        ]
    with ablate(found.network, "unary", heads=[1]):
        other = found.run() if not layers else None
        fused = [layer.fused_attn for layer in layers]
        for layer in layers:
            layer.fused_attn = False
        other = found.run() if layers else other
        for layer, before in zip(layers, fused, strict=True):
            layer.fused_attn = before
        if not layers:
            for one in hook:
                one.remove()
        output = found.run()
    torch.testing.assert_close(output, other, rtol=0, atol=1e-10)


# ---- compared with computations by hand


def by_hand(layer: nn.MultiheadAttention, x: Tensor, weights: Tensor) -> Tensor:
    """Return the layer's output if its heads attended with weights (B, H, N, M)."""
    values = (x @ layer.in_proj_weight[24:].T + layer.in_proj_bias[24:]).view(*x.shape[:2], 3, 4).transpose(1, 2)
    mixed = (weights @ values).transpose(1, 2).flatten(2)
    return mixed @ layer.out_proj.weight.T + layer.out_proj.bias


@pytest.fixture(scope="module")
def layer() -> nn.MultiheadAttention:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    nn.init.normal_(layer.in_proj_bias)
    return layer


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("heads", [None, [1], 1, [2, 0]])
def test_without_both_terms_a_head_gives_the_plain_mean_of_its_values(
    layer: nn.MultiheadAttention, heads: list[int] | int | None, need_weights: bool
) -> None:
    x = random(2, 5, 12)
    weights = layer(x, x, x, average_attn_weights=False)[1].clone()
    weights[:, range(3) if heads is None else heads] = 1 / 5
    with ablate(layer, "both", heads=heads):
        output = layer(x, x, x, need_weights=need_weights)[0]
    torch.testing.assert_close(output, by_hand(layer, x, weights), **EXACT)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("term", ["unary", "pairwise"])
def test_the_rest_is_the_softmax_of_the_other_term(
    layer: nn.MultiheadAttention, term: str, need_weights: bool
) -> None:
    x = random(2, 5, 12)
    with capture(layer) as attention:
        layer(x, x, x)
    weights = torch.stack([terms_map(attention["attention"].terms("all", image), term) for image in (0, 1)])
    with ablate(layer, term):
        output = layer(x, x, x, need_weights=need_weights)[0]
    torch.testing.assert_close(output, by_hand(layer, x, weights), **EXACT)


def terms_map(terms: dnlnet.attention.Terms, taken: str) -> Tensor:
    maps = terms.maps_of_rows(torch.arange(5))
    return maps.pairwise if taken == "unary" else maps.unary[:, None].expand(-1, 5, -1)


def test_masked_keys_stay_masked(layer: nn.MultiheadAttention) -> None:
    x = random(1, 5, 12)
    mask = torch.tensor([[False, False, True, False, True]])
    expected = by_hand(layer, x, ((~mask).double() / 3).expand(1, 3, 5, 5))
    for need_weights in (False, True):
        with ablate(layer, "both"):
            output = layer(x, x, x, key_padding_mask=mask, need_weights=need_weights)[0]
        torch.testing.assert_close(output, expected, **EXACT)


def test_gradients_flow_through_the_other_term(layer: nn.MultiheadAttention) -> None:
    x = random(1, 5, 12).requires_grad_()
    with ablate(layer, "unary", heads=[0]):
        (gradient,) = torch.autograd.grad(layer(x, x, x)[0].square().sum(), x)
    assert gradient.isfinite().all()
    assert gradient.any()


# ---- selected layers


def test_only_the_selected_layer_is_changed() -> None:
    found = family("timm ViT")
    with capture(found.network) as before:
        found.run()
    with capture(found.network) as after, ablate(found.network, "pairwise", "blocks.1.attn", heads=[2]):
        found.run()
    assert torch.equal(before["blocks.0.attn"].call.query, after["blocks.0.attn"].call.query)
    old, new = before["blocks.1.attn"].call, after["blocks.1.attn"].call
    assert torch.equal(old.query[:, :2], new.query[:, :2])
    assert torch.equal(old.key, new.key)
    mean = old.query[:, 2:].mean(dim=-2, keepdim=True)
    torch.testing.assert_close(new.query[:, 2:], mean.expand_as(new.query[:, 2:]), **EXACT)


# ---- dnlnet blocks


@pytest.mark.parametrize(
    ("variant", "values"),
    [*((variant, "shared") for variant in VARIANTS), ("dnl", "separate"), ("dnl_dagger", "separate")],
)
@pytest.mark.parametrize("gate", ["none", "scalar", "scalar_pairwise"])
@pytest.mark.parametrize("term", TERMS)
def test_blocks_lose_a_term(variant: str, values: str, gate: str, term: str) -> None:
    block = equations.randomise(NonLocalBlock(4, variant, gate=gate, values=values))
    net, x = nn.Sequential(block), random(1, 4, 3, 5)
    expected = net(x)
    maps = equations.attention(block, x[0])
    left = {"unary": ["pairwise"], "pairwise": ["unary"], "both": []}[term]
    added = torch.zeros_like(x[0].flatten(1).T)
    for name in left:
        if getattr(VARIANTS[variant], name):
            gated = block.gamma is not None and not (gate == "scalar_pairwise" and name == "unary")
            layer = block.unary_value if name == "unary" and values == "separate" else block.value
            own = x[0].flatten(1).T @ layer.weight.T
            added = added + (block.gamma if gated else 1) * maps[name].expand(15, -1) @ own
    with unchanged(net), ablate(net, term):
        for output in (net(x), portable(net, "plain")(x)):
            torch.testing.assert_close(output[0].flatten(1).T, x[0].flatten(1).T + added, **EXACT)
    assert torch.equal(net(x), expected)


def test_a_block_is_restored_after_an_error() -> None:
    net = nn.Sequential(NonLocalBlock(4, "nl"))

    def fail() -> None:
        with ablate(net, "unary"):
            net(torch.rand(1, 3, 5, 5))

    with unchanged(net), pytest.raises(ValueError, match="4, H, W"):
        fail()
    assert net[0].variant is VARIANTS["nl"]


# ---- bad input


@pytest.mark.parametrize(
    ("term", "options", "problem"),
    [
        ("unry", {}, "unknown term 'unry'; did you mean 'unary'"),
        ("unary", {"layers": "self_atn"}, "unknown layer 'self_atn'; did you mean 'self_attn'"),
        ("unary", {"heads": [1, 3]}, "self_attn: there is no head 3; it has 3, counted from 0"),
        ("unary", {"heads": -1}, "self_attn: there is no head -1"),
    ],
)
def test_unknown_terms_layers_and_heads_are_refused(term: str, options: dict[str, object], problem: str) -> None:
    network = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).eval()

    def run() -> None:
        with ablate(network, term, **options):
            network(torch.rand(1, 5, 12))

    with unchanged(network), pytest.raises(ValueError, match=problem):
        run()


def test_a_block_has_one_head() -> None:
    with (
        pytest.raises(ValueError, match="0: there is no head 2; it has 1"),
        ablate(nn.Sequential(NonLocalBlock(4)), "unary", heads=2),
    ):
        pass


def test_a_model_without_attention_warns() -> None:
    net = nn.Sequential(nn.Linear(3, 3))
    with (
        pytest.warns(UserWarning, match="no attention ran in 0 inside"),
        ablate(net, "unary", "0"),
    ):
        net(torch.rand(1, 3))
