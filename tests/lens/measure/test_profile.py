import json
import math

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import equations
from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.data.classes import IGNORE
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.measure.profile import OVERLAPS, STATISTICS, HeadProfile, Profile, profile
from dnlnet.lens.show.charts import profile_figure
from dnlnet.lens.trace import attention_call
from dnlnet.lens.trace.capture import Captured, capture


class Plain(nn.Module):
    """Attention with given queries and keys."""

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, attn_mask=mask, scale=1.0)


def captured(net: nn.Module, *inputs: Tensor, **named: object) -> Captured:
    net.eval().double()
    with torch.no_grad(), capture(net) as attention:
        net(*inputs, **named)
    return attention


def plain(attention: list[list[float]], query: Tensor, key: Tensor, prefix: int = 0) -> dict[str, float | None]:
    """Compute the definitions one query and one key at a time: (N, M) attention, (N, D) queries, (M, D) keys."""
    count, keys = len(attention), len(attention[0])
    unary, both = variances(query, key)
    mean_row = [sum(row[j] for row in attention) / count for j in range(keys)]
    distances = [sum(abs(a - m) for a, m in zip(row, mean_row, strict=True)) / 2 for row in attention]
    entropies = [-sum(a * math.log(a) for a in row if a > 0) for row in attention]
    return {
        "unary_share": unary / both if both else None,
        "dependence": sum(distances) / count,
        "positions": sum(math.exp(entropy) for entropy in entropies) / count,
        "strongest": max(mean_row),
        "prefix": sum(mean_row[:prefix]) if prefix else None,
    }


def variances(query: Tensor, key: Tensor) -> tuple[float, float]:
    """Return the variance over keys of the unary logit, and the mean over queries of the variance of both terms."""
    mean_query = query.mean(dim=0)
    both = [variance([float(q @ k) for k in key]) for q in query]
    return variance([float(mean_query @ k) for k in key]), sum(both) / len(both)


def variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def assert_is(found: dict[str, tuple[float | None, ...]], image: int, expected: dict[str, float | None]) -> None:
    for name, value in expected.items():
        assert found[name][image] == (None if value is None else pytest.approx(value, abs=1e-9)), name


# ---- statistics compared with the explicit attention


def test_uniform_attention_covers_all_positions_and_is_independent_of_the_query() -> None:
    (head,) = captured(Plain(), torch.zeros(1, 1, 5, 3).double(), torch.randn(1, 1, 7, 3).double()).profile()
    assert_is(head.values, 0, {"dependence": 0, "positions": 7, "strongest": 1 / 7, "unary_share": None})


def test_attention_that_ignores_the_query_is_all_unary() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 1, 1, 3, generator=generator).double().expand(-1, -1, 5, -1)
    (head,) = captured(Plain(), query, torch.randn(1, 1, 7, 3, generator=generator).double()).profile()
    assert_is(head.values, 0, {"dependence": 0, "unary_share": 1})


def test_attention_of_each_query_to_itself_depends_on_the_query() -> None:
    tokens = 100 * torch.eye(6).double()[None, None]
    (head,) = captured(Plain(), tokens, tokens).profile()
    assert_is(head.values, 0, {"dependence": 1 - 1 / 6, "positions": 1, "strongest": 1 / 6})


def test_centred_queries_have_no_unary_share() -> None:
    query = torch.randn(1, 1, 5, 3, generator=torch.Generator().manual_seed(0)).double()
    (head,) = captured(Plain(), query - query.mean(dim=2, keepdim=True), query).profile()
    assert head.values["unary_share"][0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rows", [2**22, 1])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_statistics_of_multi_head_attention(
    cross: bool, hidden: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_call, "BLOCK", rows)
    torch.manual_seed(0)
    net = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8).double()
    y = torch.randn(2, 7, 8).double() if cross else x
    count = y.shape[1]
    mask = torch.arange(count) >= torch.tensor([[count], [count - 2]]) if hidden else None
    found = captured(net, x, y, y, key_padding_mask=mask, average_attn_weights=False).profile()
    weights = net(x, y, y, key_padding_mask=mask, average_attn_weights=False)[1]
    q, k, _ = net.in_proj_weight.detach().chunk(3)
    b_q, b_k, _ = net.in_proj_bias.detach().chunk(3)
    query = (x @ q.T + b_q).view(2, 5, 2, 4).transpose(1, 2) / 2  # logits are divided by the root of the width
    key = (y @ k.T + b_k).view(2, count, 2, 4).transpose(1, 2)
    assert [(head.layer, head.head) for head in found] == [("attention", 0), ("attention", 1)]
    for image in range(2):
        seen = ~mask[image] if hidden else torch.ones(count, dtype=torch.bool)
        for number, head in enumerate(found):
            attention = weights[image, number][:, seen].tolist()
            assert_is(head.values, image, plain(attention, query[image, number], key[image, number, seen]))


def test_a_pair_mask_affects_the_attention_and_not_the_terms() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, 4, 3, generator=generator).double() for _ in range(2))
    causal = torch.ones(4, 4).tril().bool()
    (head,) = captured(Plain(), query, key, causal).profile()
    logits = (query @ key.mT)[0, 0].masked_fill(~causal, -torch.inf)
    assert_is(head.values, 0, plain(logits.softmax(dim=-1).tolist(), query[0, 0], key[0, 0]))


def test_a_fully_masked_query_does_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, 4, 3, generator=generator).double() for _ in range(2))
    mask = torch.ones(4, 4).bool()
    mask[1] = False
    (head,) = captured(Plain(), query, key, mask).profile()
    kept = torch.tensor([0, 2, 3])
    expected = plain((query @ key.mT)[0, 0, kept].softmax(dim=-1).tolist(), query[0, 0, kept], key[0, 0])
    assert_is(head.values, 0, {name: expected[name] for name in ("dependence", "positions", "strongest")})


def small_vit() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(
        "vit_small_patch14_reg4_dinov2", img_size=(42, 56), depth=2, embed_dim=16, num_heads=2
    ).double()


def query_and_key(attention: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scaled queries and the keys (B, H, N, D) of timm's attention."""
    size = len(x), x.shape[1], 3, attention.num_heads, -1
    query, key, _ = attention.qkv(x).view(size).permute(2, 0, 3, 1, 4)
    return query * attention.scale, key


def inputs_of(module: nn.Module, net: nn.Module, x: Tensor) -> Tensor:
    found = []
    with torch.no_grad(), module.register_forward_pre_hook(lambda _, given: found.append(given[0])):
        net(x)
    return found[0]


def test_prefix_tokens_count_as_attention_and_their_share_is_reported() -> None:
    net, x = small_vit(), torch.rand(2, 3, 42, 56).double()
    found = captured(net, x).profile()
    assert len(found) == 4
    module = net.blocks[1].attn
    query, key = query_and_key(module, inputs_of(module, net, x))
    weights = (query @ key.mT).softmax(dim=-1)
    for head in found.heads[2:]:
        for image in range(2):
            q, k, a = (part[image, head.head].detach() for part in (query, key, weights))
            assert_is(head.values, image, plain(a.tolist(), q, k, prefix=5))


def test_statistics_of_windows_are_means_over_windows() -> None:
    torch.manual_seed(0)
    net = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, depths=(2,), embed_dim=12, num_heads=(2,), strict_img_size=False
    ).double()
    x = torch.rand(1, 3, 56, 56).double()
    found = captured(net, x).profile()
    block = net.layers[0].blocks[1]  # its windows are shifted
    assert block.shift_size == (3, 3)
    block.attn.fused_attn = False
    weights = []
    with block.attn.softmax.register_forward_hook(lambda _, given, result: weights.append(result.detach())):
        given = inputs_of(block.attn, net, x)
    query, key = (part.detach() for part in query_and_key(block.attn, given))
    for head in found.heads[2:]:
        windows = [plain(weights[0][w, head.head].tolist(), query[w, head.head], key[w, head.head]) for w in range(4)]
        names = ("dependence", "positions", "strongest")
        assert_is(head.values, 0, {name: sum(window[name] for window in windows) / 4 for name in names})
        unary, both = zip(*(variances(query[w, head.head], key[w, head.head]) for w in range(4)), strict=True)
        assert_is(head.values, 0, {"unary_share": sum(unary) / sum(both)})


def test_padding_of_windows_is_excluded() -> None:
    torch.manual_seed(0)
    net = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=40, depths=(1,), embed_dim=12, num_heads=(2,), strict_img_size=False
    )
    with torch.no_grad():
        for parameter in net.layers[0].blocks[0].attn.parameters():
            parameter.zero_()  # attention becomes uniform, in windows of 7 x 7, 7 x 3, 3 x 7 and 3 x 3 positions
    found = captured(net, torch.rand(1, 3, 40, 40).double()).profile()
    sizes = (49, 21, 21, 9)
    expected = {"positions": sum(n * n for n in sizes) / 100, "strongest": 4 / 100, "dependence": 0}
    assert_is(found[0].values, 0, expected)


def test_windows_with_unknown_layout_belong_to_their_image() -> None:
    net = timm.create_model("twins_svt_small", depths=(1, 0, 0, 0), embed_dims=(8, 8, 8, 8), num_heads=(2, 1, 1, 1))
    found = captured(net, torch.rand(3, 3, 224, 224).double())
    assert found["blocks.0.0.attn"].call.query.shape[:2] == (3 * 64, 2)
    truths = [GroundTruth.of(labels_of(4, 4), classes=3)] * 3
    head = profile(found, truths)[1]
    assert [len(values) for values in head.values.values()] == [3] * len(STATISTICS | OVERLAPS)
    assert head.average("pair_within") is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_statistics_of_dnlnet_blocks(variant: str) -> None:
    block = equations.randomise(NonLocalBlock(6, variant, pool=2), std=0.4)
    x = torch.randn(2, 6, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (head,) = captured(block, x).profile()
    for image in range(2):
        with torch.no_grad():
            combined = equations.attention(block, x[image])["combined"]
        both = combined / combined.sum(dim=1, keepdim=True)
        expected = plain(both.tolist(), torch.zeros(24, 1), torch.zeros(6, 1))
        assert_is(head.values, image, {k: v for k, v in expected.items() if k != "unary_share"})
    terms = block.variant.pairwise, bool(block.variant.unary)
    share = head.values["unary_share"][0]
    assert share == {(True, False): 0, (False, True): 1}.get(terms, pytest.approx(0.5, abs=0.49))


def test_many_tokens_are_measured_in_blocks_of_the_shipped_size() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1200, 4).double()
    found = captured(Plain(), query, key)
    with LargestTensor() as recorder:
        (head,) = found.profile()
    assert attention_call.BLOCK / 2 < recorder.elements <= attention_call.BLOCK < 1200**2
    attention = (query @ key.mT).softmax(dim=-1)[0, 0]
    mean_row = attention.mean(dim=0)
    expected = {
        "dependence": (attention - mean_row).abs().sum(dim=1).mean() / 2,
        "positions": torch.special.entr(attention).sum(dim=1).exp().mean(),
        "strongest": mean_row.max(),
    }
    assert {name: head.values[name][0] for name in expected} == pytest.approx(
        {name: float(value) for name, value in expected.items()}
    )


@pytest.mark.parametrize("kind", ["vit", "swin", "block"])
def test_no_tensor_of_tokens_times_tokens_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_call, "BLOCK", 20_000)
    torch.manual_seed(0)
    size = (4 * 28, 4 * 28) if kind == "swin" else (28, 28)
    net, x = {
        "vit": lambda: (
            timm.create_model("vit_tiny_patch16_224", img_size=28, patch_size=1, depth=1, embed_dim=4, num_heads=1),
            torch.rand(1, 3, *size),
        ),
        "swin": lambda: (
            timm.create_model(
                "swin_tiny_patch4_window7_224", img_size=112, depths=(1,), embed_dim=4, num_heads=(1,), window_size=28
            ),
            torch.rand(1, 3, *size),
        ),
        "block": lambda: (NonLocalBlock(3, "dnl"), torch.rand(1, 3, *size)),
    }[kind]()
    with torch.no_grad(), capture(net.eval()) as attention:
        net(x)
    truth = GroundTruth.of(torch.randint(0, 3, size), classes=3)
    monkeypatch.setattr("dnlnet.attention.blocked.MIN_LOGITS", 1)
    monkeypatch.setattr("dnlnet.attention.blocked.MAX_LOGITS", 32 * 784)
    with LargestTensor() as recorder:
        profile(attention, [truth])
    assert recorder.elements < 784 * 784 / 10


# ---- overlaps with the ground truth


def labels_of(height: int, width: int) -> Tensor:
    labels = torch.randint(0, 4, (3, 4), generator=torch.Generator().manual_seed(2))
    labels = labels.repeat_interleave(height, 0).repeat_interleave(width, 1)
    labels[labels == 3] = IGNORE
    return labels


def test_overlaps_equal_those_of_maps_over_the_patches() -> None:
    net, x = small_vit(), torch.rand(1, 3, 42, 56).double()
    labels = labels_of(14, 14)
    truth = GroundTruth.of(labels, classes=3, width=2)
    found = profile(captured(net, x), [truth])
    module = net.blocks[1].attn
    query, key = (part[0, :, 5:].detach() for part in query_and_key(module, inputs_of(module, net, x)))
    own = labels[::14, ::14].flatten()
    same = (own[:, None] == own).double()
    edge = truth.boundary.view(3, 14, 4, 14).double().mean(dim=(1, 3)).flatten()
    known = own != IGNORE
    for head in found.heads[2:]:
        q, k = query[head.head], key[head.head]
        mean = q.mean(dim=0, keepdim=True)
        maps = {
            "attention": (q @ k.T).softmax(dim=-1),
            "pair": ((q - mean) @ k.T).softmax(dim=-1),
            "unary": (mean @ k.T).softmax(dim=-1).expand(12, -1),
            "uniform": torch.full((12, 12), 1 / 12).double(),
        }
        for name in OVERLAPS:
            kind, region = name.split("_")
            overlap = (maps[kind] * same).sum(dim=1) if region == "within" else maps[kind] @ edge
            assert head.values[name][0] == pytest.approx(float(overlap[known].mean()), abs=1e-6), name


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("kind", ["swin", "mobilevit", "masked", "vit"])
def test_terms_applied_to_values_equal_their_maps_times_the_values(
    kind: str, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_call, "BLOCK", 100)
    torch.manual_seed(0)
    if kind == "masked":
        mask = (torch.arange(6) < 4).expand(5, 6)
        recorded = captured(Plain(), torch.randn(2, 3, 5, 4).double(), torch.randn(2, 3, 6, 4).double(), mask)
    elif kind == "vit":
        recorded = captured(small_vit(), torch.rand(2, 3, 42, 56).double())
    elif kind == "swin":
        net = timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=40, depths=(2,), embed_dim=12, num_heads=(2,), window_size=7
        )
        recorded = captured(net, torch.rand(2, 3, 40, 40).double())
    else:
        recorded = captured(timm.create_model("mobilevit_xxs"), torch.rand(2, 3, 64, 64).double())
    found = list(recorded.values())[-1]
    terms = found.terms("mean" if mean else "all", image=1)
    queries, keys = (int(torch.Size(size).numel()) for size in (terms.size, terms.key_size))
    values = torch.rand(keys, 3).double()
    maps = terms.maps_of_rows(torch.arange(queries))
    for term in ("pairwise", "combined"):
        expected = getattr(maps, term).flatten(2) @ values
        assert torch.allclose(terms.applied(term, values), expected, atol=1e-12), term
    assert torch.allclose(terms.applied("unary", values)[:, 0], maps.unary.flatten(1) @ values, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_overlap_of_a_block_uses_its_combined_map(variant: str) -> None:
    block = equations.randomise(NonLocalBlock(6, variant), std=0.4)
    x = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = labels_of(5, 5)
    truth = GroundTruth.of(labels, classes=3, width=2)
    (head,) = profile(captured(block, x), [truth, truth])
    own = labels[::5, ::5].flatten()
    for image in range(2):
        with torch.no_grad():
            combined = equations.attention(block, x[image])["combined"]
        shares = combined / combined.sum(dim=1, keepdim=True)
        within = (shares * (own[:, None] == own)).sum(dim=1)[own != IGNORE].mean()
        assert head.values["attention_within"][image] == pytest.approx(float(within), abs=1e-6)


def test_tokens_without_a_grid_have_no_overlaps() -> None:
    tokens = torch.rand(1, 5, 4).double()
    found = captured(nn.MultiheadAttention(4, 1, batch_first=True), tokens, tokens, tokens)
    (head,) = profile(found, [GroundTruth.of(labels_of(4, 4), classes=3)])
    assert {name: head.values[name] for name in OVERLAPS} == dict.fromkeys(OVERLAPS, (None,))


def test_every_image_needs_a_ground_truth() -> None:
    tokens = torch.rand(2, 1, 5, 3).double()
    with pytest.raises(ValueError, match="1 ground truths for 2 images"):
        profile(captured(Plain(), tokens, tokens), [GroundTruth.of(labels_of(4, 4), classes=3)])


# ---- the table


def test_separate_and_batched_images_give_the_same_profile() -> None:
    net, x = small_vit(), torch.rand(3, 3, 42, 56).double()
    whole = captured(net, x).profile()
    joined = Profile.joined([captured(net, image[None]).profile() for image in x])
    assert [(head.layer, head.head) for head in joined] == [(head.layer, head.head) for head in whole]
    for one, other in zip(whole, joined, strict=True):
        for name in STATISTICS:
            assert one.values[name] == pytest.approx(other.values[name], abs=1e-12)
            assert one.average(name).images == 3
    with pytest.raises(ValueError, match="different attentions"):
        Profile.joined([whole, Profile(whole.heads[:1])])


def test_a_table_row_is_a_layer_or_a_head() -> None:
    found = captured(small_vit(), torch.rand(2, 3, 42, 56).double()).profile()
    assert [(row["layer"], row["head"]) for row in found.table("all")] == [
        (f"blocks.{layer}.attn", head) for layer in range(2) for head in range(2)
    ]
    rows = found.table()
    assert [(row["layer"], row["head"]) for row in rows] == [(f"blocks.{layer}.attn", "mean") for layer in range(2)]
    by_image = torch.tensor([head.values["prefix"] for head in found.heads[:2]], dtype=torch.float64).mean(dim=0)
    assert rows[0]["prefix"].mean == pytest.approx(float(by_image.mean()))
    assert rows[0]["prefix"].error == pytest.approx(float(by_image.std()) / math.sqrt(2))
    content = json.loads(json.dumps(found.to_json()))
    assert content["layers"][0]["prefix"]["mean"] == rows[0]["prefix"].mean
    assert content["heads"][3]["values"]["dependence"] == list(found[3].values["dependence"])
    assert repr(found).splitlines()[0].split() == ["layer", *STATISTICS]


def test_one_head_is_selected_in_every_layer_that_has_it() -> None:
    found = captured(small_vit(), torch.rand(1, 3, 42, 56).double()).profile()
    assert [(head.layer, head.head) for head in found.of_head(1)] == [("blocks.0.attn", 1), ("blocks.1.attn", 1)]
    with pytest.raises(ValueError, match="no head 2; the layers have heads 0 to 1"):
        found.of_head(2)


def test_a_heat_map_shows_layers_of_different_numbers_of_heads() -> None:
    values = {"dependence": (0.25,), "prefix": (None,), "pair_within": (0.75,), "attention_within": (0.5,)}
    heads = [HeadProfile(f"stage.{layer}", head, values) for layer in range(2) for head in range(2 * layer + 1)]
    figure = profile_figure(Profile(tuple(heads)))
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == [  # no prefix tokens, no panel
        "dependence\non the query",
        "attention within\nthe query's class",
        "pairwise within\nthe query's class",
        "within the class:\npairwise - attention",
    ]
    grid = panels["within the class:\npairwise - attention"].images[0].get_array()
    assert grid.mask.tolist() == [[False, True, True], [False, False, False]]
    assert grid.compressed().tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="no values to draw"):
        profile_figure(Profile((HeadProfile("a", 0, {"dependence": (None,)}),)))
