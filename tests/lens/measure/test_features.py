"""Patch features equal each library's last tokens of an image."""

from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn

from dnlnet.lens.measure.features import find_features, watch_features
from families import Family, family, unchanged


def _tokens(prefix: int, rows: int, columns: int) -> Callable[[Family], Tensor]:
    def own(found: Family) -> Tensor:
        return found.network.forward_features(**found.inputs)[0, prefix:].unflatten(0, (rows, columns))

    return own


OWN: dict[str, Callable[[Family], Tensor]] = {
    "timm ViT": _tokens(1, 4, 6),
    "timm DINOv2 with registers": _tokens(5, 2, 3),
    "timm DINOv3": _tokens(5, 2, 3),
    "timm Swin": lambda found: found.network.forward_features(**found.inputs)[0],
    "torchvision Swin": lambda found: found.network.norm(found.network.features(found.inputs["x"]))[0],
    "transformers DINOv2, sdpa": lambda found: (
        found.network(**found.inputs).last_hidden_state[0, 1:].unflatten(0, (4, 4))
    ),
    "transformers CLIP, eager": lambda found: (
        found.network(**found.inputs).last_hidden_state[0, 1:].unflatten(0, (4, 4))
    ),
    "transformers SegFormer, sdpa": lambda found: found.network(**found.inputs).last_hidden_state[0].permute(1, 2, 0),
}


@pytest.mark.parametrize("name", OWN)
@torch.no_grad()
def test_features_are_the_last_tokens_of_the_image(name: str) -> None:
    found = family(name)
    with unchanged(found.network):
        source, attention = find_features(found.network, found.run)
        with watch_features(found.network, source) as features:
            found.run()
    assert len(attention) >= 2
    torch.testing.assert_close(features(), OWN[name](found).float(), rtol=0, atol=0)


def test_a_network_without_attention_has_no_patch_features() -> None:
    network = timm.create_model("resnet18").eval()
    with pytest.raises(ValueError, match=r"ResNet has no .* no attention over an image"):
        find_features(network, lambda: network(torch.rand(1, 3, 32, 32)))


def test_text_has_no_patch_features() -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).eval()
    with pytest.raises(ValueError, match="TransformerEncoderLayer has no patch features"):
        find_features(layer, lambda: layer(torch.rand(1, 5, 12)))
