import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.lens.trace.capture import capture
from dnlnet.lens.trace.layout import Layout, find_layout, prefix_tokens
from families import family

GRIDS = {
    "timm ViT": [((4, 6), (4, 6), 1, 1)] * 2,
    "timm DINOv2 with registers": [((2, 3), (2, 3), 5, 5)] * 2,
    "timm EVA-02": [((2, 3), (2, 3), 1, 1)] * 2,
    "timm DINOv3": [((2, 3), (2, 3), 5, 5)] * 2,
    "torchvision ViT": [((4, 4), (4, 4), 1, 1)] * 2,
    "transformers DINOv2, sdpa": [((4, 4), (4, 4), 1, 1)] * 2,
    "transformers CLIP, sdpa": [((4, 4), (4, 4), 1, 1)] * 2,
    "transformers BERT, sdpa": [((6,), (6,), 0, 0)] * 2,
    "transformers SegFormer, sdpa": [
        ((16, 24), (2, 3), 0, 0),
        ((8, 12), (2, 3), 0, 0),
        ((4, 6), (2, 3), 0, 0),
        ((2, 3), (2, 3), 0, 0),
    ],
}


@pytest.mark.parametrize("name", GRIDS)
def test_tokens_of_known_families(name: str) -> None:
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    layouts = [recorded.require_layout() for recorded in attention.values()]
    assert [(x.size, x.key_size, x.prefix, x.key_prefix) for x in layouts] == GRIDS[name]


@pytest.mark.parametrize("size", [(32, 32), (32, 80), (96, 16)])
def test_any_image_size_has_a_layout(size: tuple[int, int]) -> None:
    network = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, dynamic_img_size=True
    ).eval()
    with capture(network) as attention, torch.no_grad():
        network(torch.rand(1, 3, *size))
    assert attention["blocks.0.attn"].require_layout() == Layout(
        (size[0] // 8, size[1] // 8), (size[0] // 8, size[1] // 8), 1, 1
    )


def test_prefix_tokens_are_found_in_a_nested_model() -> None:
    network = timm.create_model("vit_small_patch14_reg4_dinov2", img_size=28, embed_dim=24, depth=1, num_heads=3)
    assert prefix_tokens(nn.Sequential(network)) == prefix_tokens(network) == 5
    assert prefix_tokens(nn.Linear(2, 2)) is None


class Tokens(nn.Module):
    """Attention between some tokens of an image, in groups."""

    def __init__(self, count: int, groups: int = 1) -> None:
        super().__init__()
        self.count, self.groups = count, groups

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten()[: self.groups * self.count * 2].view(self.groups, 1, self.count, 2)
        return F.scaled_dot_product_attention(tokens, tokens, tokens)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (12, (6, 8), (0, (3, 4))),
        (13, (6, 8), (1, (3, 4))),
        (27 * 36 + 5, (360, 480), (5, (27, 36))),
        (4 * 5, (35, 50), (0, (4, 5))),
    ],
)
def test_counts_and_aspect_place_the_tokens_of_an_unknown_model(
    count: int, size: tuple[int, int], expected: tuple[int, tuple[int, int]]
) -> None:
    layout = find_layout(nn.Identity(), (count, count), size)
    assert isinstance(layout, Layout)
    assert (layout.prefix, layout.size) == expected == (layout.key_prefix, layout.key_size)


def test_tokens_with_unknown_layout_name_the_arguments_to_pass() -> None:
    model = Tokens(count=47)
    model.num_prefix_tokens = 0
    with capture(model) as attention:
        model(torch.rand(1, 3, 12, 16))
    recorded = attention["attention"]
    assert recorded.weights().shape == (1, 1, 47, 47)  # no layout needed
    with pytest.raises(ValueError, match=r"attention: 47 tokens .*12 x 16 pixels.*laid_out\(Layout\(.*prefix="):
        recorded.maps([(0, 0)])


def test_a_layout_by_hand() -> None:
    model = Tokens(count=23)
    with capture(model) as attention:
        model(torch.rand(1, 3, 12, 16))
    recorded = attention["attention"].laid_out(Layout((4, 5), (20,), prefix=3, key_prefix=3))
    combined = recorded.maps([(1, 2)]).combined
    assert combined.shape == (1, 1, 20)
    own = recorded.weights()[0, 0, 3 + 5 + 2, 3:]
    torch.testing.assert_close(combined[0, 0], own / own.sum())


def test_unknown_windows_are_not_mistaken_for_the_whole_image() -> None:
    model = Tokens(count=4, groups=4)
    with capture(model) as attention:
        model(torch.rand(1, 3, 16, 16))
    recorded = attention["attention"]
    with pytest.raises(ValueError, match=r"4 groups of 4, .* Tokens; .*laid_out\(Layout\(.*places="):
        recorded.maps([(0, 0)])
    # four columns of a map of 4 x 4
    placed = recorded.laid_out(Layout((4, 4), (4, 4), places=torch.arange(16).view(4, 4).mT))
    combined = placed.maps([(1, 2)]).combined[0, 0]
    torch.testing.assert_close(combined[:, 2], recorded.weights()[2, 0, 1])
    assert combined.count_nonzero() == 4


def test_attention_between_channels_has_no_positions() -> None:
    network = timm.create_model("edgenext_xx_small").eval()
    with capture(network) as attention, torch.no_grad():
        network(torch.rand(1, 3, 64, 64))
    assert len(attention) == 3
    for recorded in attention.values():
        with pytest.raises(ValueError, match="this attention is between channels, not positions"):
            recorded.maps([(0, 0)])


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        (Layout((4, 5), (4, 5)), "23 queries and 23 keys .*20 and 20"),
        (Layout((4, 5), (4, 5), 3), "23 queries and 23 keys .*23 and 20"),
        (
            Layout((4, 4), (4, 4), places=torch.arange(16).view(4, 4)),
            "23 queries and 23 keys .*windows .* 4 and 4",
        ),
    ],
)
def test_a_mismatched_layout_is_refused(layout: Layout, problem: str) -> None:
    model = Tokens(count=23)
    with capture(model) as attention:
        model(torch.rand(1, 3, 12, 16))
    with pytest.raises(ValueError, match=problem):
        attention["attention"].laid_out(layout)
