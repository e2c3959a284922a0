import numpy as np
import pytest
import torch

import equations
from dnlnet import VARIANTS, NonLocalBlock

each_variant = pytest.mark.parametrize("variant", VARIANTS)
SIZES = {1: (13,), 2: (5, 6), 3: (3, 4, 5)}


def example(variant: str, dims: int = 2, **options) -> tuple[NonLocalBlock, torch.Tensor]:
    block = equations.randomise(NonLocalBlock(6, variant, dims, **options))
    x = torch.randn(2, 6, *SIZES[dims], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return block, x


@each_variant
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("pool", [1, 2])
def test_maps_equal_the_equations(variant: str, dims: int, pool: int) -> None:
    block, x = example(variant, dims, pool=pool)
    queries = [(0,) * dims, tuple(s - 1 for s in SIZES[dims])]
    maps = block.attention_maps(x, queries)
    for b, sample in enumerate(x):
        expected = equations.attention(block, sample)
        rows = [0, sample[0].numel() - 1]
        for name in ("pairwise", "combined"):
            ours = getattr(maps, name)
            assert (ours is None) == (expected[name] is None or (name == "pairwise" and not block.variant.pairwise))
            if ours is not None:
                torch.testing.assert_close(ours[b].flatten(1), expected[name][rows], rtol=1e-9, atol=1e-12)
        if block.variant.unary:
            torch.testing.assert_close(maps.unary[b].flatten(), expected["unary"][0], rtol=1e-9, atol=1e-12)
        else:
            assert maps.unary is None


@each_variant
def test_each_term_sums_to_one(variant: str) -> None:
    block, x = example(variant)
    maps = block.attention_maps(x, [(0, 0), (4, 5), (2, 1)])
    terms = 2 if not block.variant.coupled and block.variant.pairwise and block.variant.unary else 1
    one = torch.ones((), dtype=torch.float64)
    if maps.pairwise is not None:
        assert maps.pairwise.shape == (2, 3, 5, 6)
        torch.testing.assert_close(maps.pairwise.sum((2, 3)), one.expand(2, 3))
    if maps.unary is not None:
        assert maps.unary.shape == (2, 5, 6)
        torch.testing.assert_close(maps.unary.sum((1, 2)), one.expand(2))
    torch.testing.assert_close(maps.combined.sum((2, 3)), terms * one.expand(2, 3))


@pytest.mark.parametrize("variant", ["nl", "dnl_star"])
def test_coupled_attention_is_the_product_of_its_two_terms(variant: str) -> None:
    """Eq. 9: combined = pairwise unary / lambda_i, where lambda_i normalises the sum to one."""
    block, x = example(variant)
    maps = next(block.iter_attention_maps(x, rows=30))
    product = maps.pairwise * maps.unary[:, None]
    torch.testing.assert_close(maps.combined, product / product.sum((2, 3), keepdim=True))


@each_variant
def test_the_maps_reproduce_the_output(variant: str) -> None:
    block, x = example(variant)
    combined = torch.cat([m.combined for m in block.iter_attention_maps(x, rows=7)], dim=1).flatten(2)
    added = combined @ block.value(x.flatten(2).mT)
    torch.testing.assert_close(block(x), x + added.mT.view_as(x))


@each_variant
def test_blocks_of_rows_equal_the_rows_of_all_queries(variant: str) -> None:
    block, x = example(variant)
    blocks = list(block.iter_attention_maps(x, rows=8))
    assert [m.combined.shape[1] for m in blocks] == [8, 8, 8, 6]
    every = [(r, c) for r in range(5) for c in range(6)]
    torch.testing.assert_close(
        torch.cat([m.combined for m in blocks], 1), block.attention_maps(x, every).combined, rtol=1e-12, atol=0
    )


def test_maps_are_float32_and_normalised_under_autocast() -> None:
    block = NonLocalBlock(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        maps = block.attention_maps(torch.randn(1, 6, 5, 6), [(1, 1)])
    assert maps.pairwise.dtype == torch.float32
    torch.testing.assert_close(maps.pairwise.sum(), torch.tensor(1.0))


def test_positions_may_be_a_tensor_or_an_array() -> None:
    block, x = example("dnl")
    listed = block.attention_maps(x, [(1, 2), (3, 4)])
    for points in (torch.tensor([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]), list(torch.tensor([[1, 2], [3, 4]]))):
        torch.testing.assert_close(block.attention_maps(x, points).combined, listed.combined)
    block, x = example("dnl", 1)
    listed = block.attention_maps(x, [1, 3])
    for points in (torch.tensor([1, 3]), np.array([1, 3]), np.array([[1], [3]])):
        torch.testing.assert_close(block.attention_maps(x, points).combined, listed.combined)


@pytest.mark.parametrize(
    "queries",
    [
        [(1.0, 2.0)],
        torch.tensor([[1.5, 2.0]]),
        np.array([[1.0, 2.0]]),
        torch.ones(5, 6, dtype=torch.bool),
        np.ones((5, 6), dtype=bool),
        [(True, False)],
        torch.ones(1, 1, 2, dtype=torch.int64),
        torch.tensor(3),
        3,
        None,
        "ab",
        [None],
        [(1j, 0)],
        [(float("nan"), 0)],
    ],
)
def test_values_other_than_positions_are_refused_in_one_line(queries: object) -> None:
    block, x = example("dnl")
    with pytest.raises(ValueError, match=r"2 whole numbers on the 5 x 6 map") as error:
        block.attention_maps(x, queries)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("queries", [[(5, 0)], [(0, 6)], [(-1, 0)], [(1,)], [(1, 1, 1)], [3], []])
def test_positions_outside_the_map_are_refused(queries: list) -> None:
    block, x = example("dnl")
    with pytest.raises(ValueError, match=r"5 x 6 map|no query positions"):
        block.attention_maps(x, queries)


def test_rows_below_one_are_refused() -> None:
    block, x = example("dnl")
    with pytest.raises(ValueError, match=r"rows.* 1.* 0"):
        next(block.iter_attention_maps(x, rows=0))
