"""Blocks of other code bases, reimplemented from their descriptions, equal ours with the matching preset."""

from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet import NonLocalBlock
from dnlnet.attention.spec import VARIANTS


def block_of(variant: str, preset: str, dims: int = 2, **options: object) -> NonLocalBlock:
    torch.manual_seed(0)
    block = NonLocalBlock(8, variant, dims, preset=preset, **options).double().eval()  # type: ignore[arg-type]
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return block


def tokens(x: Tensor) -> Tensor:
    return x.flatten(2).mT


def finished(block: NonLocalBlock, x: Tensor, y: Tensor) -> Tensor:
    """Return x + norm(W_o y)."""
    assert block.projection is not None
    assert block.norm is not None
    return x + block.norm(block.projection(y).mT).view(x.shape)


@pytest.mark.parametrize("dims", [2, 3])
def test_dot_products_of_pyslowfast_are_divided_by_the_number_of_keys(dims: int) -> None:
    block = block_of("nl", "slowfast", dims, attention="dot", scaled=False)
    x = torch.randn(2, 8, *(3, 6, 5)[3 - dims :], dtype=torch.float64, requires_grad=True)
    pool = F.max_pool2d(x, 2) if dims == 2 else F.max_pool3d(x, (1, 2, 2))
    theta, phi, g = block.query(tokens(x)), block.key(tokens(pool)), block.value(tokens(pool))  # type: ignore[misc]
    theirs = finished(block, x, (theta @ phi.mT / phi.shape[1]) @ g)
    torch.testing.assert_close(block(x), theirs)
    torch.testing.assert_close(block.forward_explicit(x), theirs)
    ours, other = (torch.autograd.grad(z.square().sum(), x)[0] for z in (block(x), theirs))
    torch.testing.assert_close(ours, other)


def test_dot_products_of_mmsegs_dnl_are_centred_and_its_saliency_keeps_the_softmax() -> None:
    block = block_of("dnl", "mmseg", attention="dot", scaled=False, temperature=1.0)
    x = torch.randn(2, 8, 5, 4, dtype=torch.float64)
    theta, phi, g = block.query(tokens(x)), block.key(tokens(x)), block.value(tokens(x))  # type: ignore[misc]
    theta, phi = (y - y.mean(1, keepdim=True) for y in (theta, phi))
    mask = block.saliency(tokens(x)).softmax(1)  # type: ignore[misc]
    theirs = finished(block, x, theta @ phi.mT / 20 @ g + mask.mT @ g)
    torch.testing.assert_close(block(x), theirs)


@pytest.mark.parametrize("variant", ["nl_unary", "dnl_star", "dnl_dagger", "gc"])
def test_dot_products_exist_only_for_published_blocks(variant: str) -> None:
    with pytest.raises(ValueError, match=rf"attention='dot' .* {variant}"):
        NonLocalBlock(8, variant, attention="dot")


def test_dot_products_have_no_maps() -> None:
    with pytest.raises(ValueError, match="attention='dot'"):
        NonLocalBlock(8, "nl", attention="dot").attention_maps(torch.randn(1, 8, 4, 4), [(0, 0)])


@pytest.mark.parametrize("size", [(6, 4), (5, 7)])
def test_mmcvs_sub_sample_pools_after_the_projection(size: tuple[int, int]) -> None:
    block = block_of("nl", "mmseg", pool=2)
    x = torch.randn(2, 8, *size, dtype=torch.float64, requires_grad=True)

    def pooled(layer: torch.nn.Module) -> Tensor:
        return tokens(F.max_pool2d(layer(tokens(x)).mT.reshape(2, -1, *size), 2))

    theta, phi, g = block.query(tokens(x)), pooled(block.key), pooled(block.value)  # type: ignore[misc, arg-type]
    weights = (theta @ phi.mT / sqrt(4)).softmax(2)
    theirs = finished(block, x, weights @ g)
    torch.testing.assert_close(block(x), theirs)
    torch.testing.assert_close(block.forward_explicit(x), theirs)
    maps = block.attention_maps(x.detach(), [(1, 2)]).combined
    torch.testing.assert_close(maps[:, 0].flatten(1), weights[:, size[1] + 2])
    with pytest.raises(ValueError, match="pool_projected"):
        NonLocalBlock(8, "dnl", pool=2, pool_projected=True)


def test_the_authors_dnl_dagger_scales_the_pairwise_term_alone() -> None:
    block = block_of("dnl_dagger", "authors_temperature")
    x = torch.randn(2, 8, 5, 4, dtype=torch.float64)
    query, key, value = block.query(tokens(x)), block.key(tokens(x)), block.value(tokens(x))  # type: ignore[misc]
    mean = query.mean(1, keepdim=True)
    pairwise = ((query - mean) @ (key - key.mean(1, keepdim=True)).mT / sqrt(4) / 0.05).softmax(2) @ value
    unary = (mean @ key.mT).softmax(2) @ value
    torch.testing.assert_close(block(x), x + (block.gamma * pairwise + unary).mT.reshape(x.shape))


def test_mmsegs_initial_values() -> None:
    """mmcv: theta, phi and g from N(0, 0.01); its ConvModule draws conv_out from N(0, sqrt(2 / C)).

    The saliency is a plain Conv2d: weight and bias uniform within 1 / sqrt(C), a std of 1 / sqrt(3 C).
    """
    torch.manual_seed(0)
    block = NonLocalBlock(512, "dnl", preset="mmseg")
    assert block.projection.weight.std().item() == pytest.approx(0.0625, rel=0.02)  # type: ignore[union-attr]
    assert block.saliency.weight.std().item() == pytest.approx(0.0255, rel=0.1)  # type: ignore[union-attr]
    assert 0 < abs(block.saliency.bias.item()) <= 512**-0.5  # type: ignore[union-attr]
    for layer in (block.query, block.key, block.value):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.02)  # type: ignore[union-attr]
        assert not layer.bias.any()  # type: ignore[union-attr]
    assert not block.norm.weight.any()  # type: ignore[union-attr]


def test_pyslowfasts_initial_values() -> None:
    """c2_msra_fill: N(0, sqrt(2 / outputs)), biases 0."""
    torch.manual_seed(0)
    block = NonLocalBlock(512, "nl", 3, preset="slowfast")
    for layer, std in ((block.query, 0.0884), (block.value, 0.0884), (block.projection, 0.0625)):
        assert layer.weight.std().item() == pytest.approx(std, rel=0.02)  # type: ignore[union-attr]
        assert not layer.bias.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("preset", ["paper", "authors", "authors_temperature", "authors_detection"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_authors_initial_values(variant: str, preset: str) -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(512, variant, preset=preset)
    for layer in block.children():
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.1)  # type: ignore[operator, union-attr]
        assert layer.bias is None or not layer.bias.any()  # type: ignore[operator, union-attr]
    assert block.gamma is None or not block.gamma.any()


def test_the_authors_norm_after_gamma_starts_with_weight_1() -> None:
    block = NonLocalBlock(8, "nl", preset="authors", gate="scalar_pairwise_norm")
    assert block.norm.weight.eq(1).all()  # type: ignore[union-attr]
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)  # the norm of zeros, so far
