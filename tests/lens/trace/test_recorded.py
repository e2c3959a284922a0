import pytest
import torch
from torch import nn

from dnlnet.lens.trace.attention_call import AttentionCall
from dnlnet.lens.trace.capture import capture
from dnlnet.lens.trace.recorded import RecordedAttention
from families import family

EXACT = {"rtol": 0, "atol": 1e-14}


@pytest.fixture(scope="module")
def recorded() -> RecordedAttention:
    found = family("timm DINOv2 with registers")
    with capture(found.network) as attention:
        found.run()
    return attention["blocks.1.attn"]


def test_maps_are_softmaxes_of_the_published_terms(recorded: RecordedAttention) -> None:
    """Check Eq. 4 and 5 for one head, over the tokens of the image."""
    q, k = recorded.call.query[1, 2, 5:], recorded.call.key[1, 2, 5:]
    mean_q, mean_k, scale = q.mean(dim=0), k.mean(dim=0), 8**-0.5
    maps = recorded.maps([(1, 2)], head=2, image=1)
    pairwise = (scale * (q - mean_q) @ (k - mean_k).T).softmax(dim=-1)
    unary = (scale * mean_q @ k.T).softmax(dim=-1)
    torch.testing.assert_close(maps.pairwise[0, 0].flatten(), pairwise[5], **EXACT)
    torch.testing.assert_close(maps.unary[0].flatten(), unary, **EXACT)
    torch.testing.assert_close(maps.combined[0, 0].flatten(), (scale * q @ k.T).softmax(dim=-1)[5], **EXACT)


def test_a_map_is_the_attention_conditioned_on_the_image(recorded: RecordedAttention) -> None:
    whole = recorded.weights()[0, :, 5 + 4, 5:]
    combined = recorded.maps([(1, 1)]).combined[:, 0].flatten(1)
    torch.testing.assert_close(combined, whole / whole.sum(dim=-1, keepdim=True), **EXACT)


def test_the_mean_equals_that_of_the_maps_of_all_heads(recorded: RecordedAttention) -> None:
    each, mean = recorded.maps([(0, 1), (1, 2)]), recorded.maps([(0, 1), (1, 2)], "mean")
    for term in ("pairwise", "unary", "combined"):
        expected = getattr(each, term).mean(dim=0, keepdim=True)
        torch.testing.assert_close(getattr(mean, term), expected, **EXACT)
    assert mean.pairwise.shape == (1, 2, 2, 3)


def test_heads_one_by_one(recorded: RecordedAttention) -> None:
    each = recorded.maps([(0, 1)])
    for head, terms in enumerate(recorded):
        assert torch.equal(terms.maps([(0, 1)]).pairwise[0], each.pairwise[head])
    assert len(list(recorded)) == recorded.heads == 3


@pytest.mark.parametrize(
    ("head", "image", "problem"),
    [
        (7, 0, r"there is no head 7; it has \d, counted from 0"),
        (-1, 0, "there is no head -1"),
        (0, 2, "there is no image 2; the batch has 2, counted from 0"),
        ("mean", -1, "there is no image -1"),
        ("max", 0, "heads are 'mean', 'all' or a number, not 'max'"),
    ],
)
@pytest.mark.parametrize("name", ["timm DINOv2 with registers", "timm Swin"])
def test_unknown_heads_and_images_are_refused(name: str, head: int, image: int, problem: str) -> None:
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    with pytest.raises(ValueError, match=problem):
        next(iter(attention.values())).maps([(0, 0)], head, image)


def test_heads_before_windows_keep_their_hidden_keys() -> None:
    batch, heads, windows, count = 2, 3, 4, 5
    query, key = torch.randn(2, batch, heads, windows, count, 6, dtype=torch.float64)
    mask = torch.rand(windows, 1, count) < 0.4  # of each window, for all heads
    mask[..., 0] = False
    call = AttentionCall("attention", query, key).with_mask(mask)
    split = call.split_heads(heads, first=True)
    expected = (query @ key.mT).masked_fill(mask, -torch.inf).transpose(1, 2).flatten(0, 1)  # (B L, H, N, M)
    torch.testing.assert_close(split.logits(), expected)
    assert torch.equal(split.hidden_keys, expected.isinf().all(dim=-2))


def test_half_precision_becomes_float32() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, batch_first=True).to(torch.bfloat16).eval()
    x = 40 * torch.randn(1, 6, 12, dtype=torch.bfloat16)
    with torch.no_grad(), capture(layer) as attention:
        layer(x, x, x, need_weights=False)
    found = attention["attention"]
    assert found.call.query.dtype == torch.bfloat16  # kept in its original precision
    q, k = found.call.query.double(), found.call.key.double()
    expected = (q @ k.mT / 2).softmax(dim=-1).float()
    torch.testing.assert_close(found.weights(), expected, rtol=0, atol=1e-5)
    assert found.maps([0]).combined.dtype == torch.float32


def test_text_is_a_row_of_tokens_and_padding_has_zero_share_in_every_map() -> None:
    found = family("transformers BERT, sdpa")
    with capture(found.network) as attention:
        found.run()
    first = next(iter(attention.values()))
    maps = first.maps([0, 3], image=1)
    assert maps.pairwise.shape == (3, 2, 6)
    for part in (maps.pairwise, maps.unary, maps.combined):
        assert (part[..., 4:] == 0).all()
        torch.testing.assert_close(part.sum(dim=-1), torch.ones_like(part[..., 0]), **EXACT)
    assert (first.maps([0, 3]).pairwise > 0).all()
