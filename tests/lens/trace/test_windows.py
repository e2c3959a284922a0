"""Windowed attention maps to the positions its windows were cut from."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dnlnet.lens.measure.ablate import ablate
from dnlnet.lens.trace.capture import capture
from dnlnet.lens.trace.recorded import RecordedAttention
from families import family

EXACT = {"rtol": 0, "atol": 1e-14}
SWINS = [
    "timm Swin",
    "timm Swin, written out",
    "timm Swin, always in windows",
    "torchvision Swin",
    "torchvision Swin V2",
    "transformers Swin, sdpa",
    "transformers Swin, eager",
]


def in_window(
    position: tuple[int, int], size: tuple[int, int], window: int, shift: int, name: str
) -> tuple[int, int]:
    """Return the window number of a position, and the token number in it, by plain arithmetic.

    torchvision and transformers pad the map and then shift it, unless a side has only one window; timm shifts
    first and then pads.
    """
    moved, windows = [], []
    for place, length in zip(position, size, strict=True):
        padded = -(-length // window) * window
        if name.startswith("timm"):
            moved.append((place - shift) % length)
        else:
            moved.append((place - shift) % padded if length > window else place)
        windows.append(padded // window)
    return (moved[0] // window) * windows[1] + moved[1] // window, (moved[0] % window) * window + moved[1] % window


def expected_map(
    own: Tensor, query: tuple[int, int], size: tuple[int, int], window: int, shift: int, name: str
) -> Tensor:
    """Return a query's attention (H, rows, columns) on the second of two images, from weights (B L, H, n, n)."""
    first = len(own) // 2
    of_query, token = in_window(query, size, window, shift, name)
    result = torch.zeros(own.shape[1], *size, dtype=own.dtype)
    for row in range(size[0]):
        for column in range(size[1]):
            of_key, other = in_window((row, column), size, window, shift, name)
            if of_key == of_query:
                result[:, row, column] = own[first + of_query, :, token, other]
    return result / result.sum(dim=(1, 2), keepdim=True)


@pytest.mark.parametrize("name", SWINS)
def test_maps_of_shifted_windows_are_at_their_positions(name: str) -> None:
    found = family(name)
    own = found.own()
    window = 6 if name == "timm Swin, always in windows" else 4
    # transformers computes explicit softmaxes in single precision
    tolerance = {"rtol": 0, "atol": 1e-7} if name.startswith("transformers") else EXACT
    with capture(found.network) as attention:
        found.run()
    for number, (recorded, weights) in enumerate(zip(attention.values(), own, strict=True)):
        size = recorded.require_layout().size
        assert size == ((10, 14), (10, 14), (5, 7), (5, 7))[number]
        queries = [(0, 0), (size[0] - 1, size[1] - 1), (4, 6), (1, size[1] - 2), (3, 3)]
        maps = recorded.maps(queries, image=1)
        weights = weights.reshape(-1, *recorded.call.query.shape[1:3], weights.shape[-1])
        for position, query in enumerate(queries):
            expected = expected_map(weights, query, size, window, window // 2 * (number % 2), name)
            torch.testing.assert_close(maps.combined[:, position], expected.double(), **tolerance)


HIERAS = ["timm Hiera", "timm Hiera, written out", "transformers Hiera, eager"]


def token_numbers(network: Any, number: int) -> tuple[Tensor, Tensor]:
    """Return the token at each position of the query and key maps, using the library's own unrolling."""
    stages = [0, 1, 1, 2, 2, 3]
    # A pooling block has the keys of the previous stage.
    of_keys = max(0, number - 1)
    sizes = [(16, 8), (8, 4), (4, 2), (2, 1)]
    found = []
    for block in (number, of_keys):
        rows, columns = sizes[stages[block]]
        tokens = torch.arange(rows * columns).view(1, -1, 1)
        rolled = (
            network.reroll(tokens, block)
            if hasattr(network, "reroll")
            else network.encoder.reroll(tokens, stages[block])
        )
        found.append(rolled[0, ..., 0])
    return found[0], found[1]


@pytest.mark.parametrize("name", HIERAS)
def test_maps_of_mask_units_are_at_their_positions(name: str) -> None:
    """Hiera reorders its tokens, in windows and in global attention; some blocks pool their queries."""
    found = family(name)
    own = found.own()
    with capture(found.network) as attention:
        found.run()
    assert len(attention) == len(own) == 6
    for number, (recorded, weights) in enumerate(zip(attention.values(), own, strict=True)):
        queries, keys = token_numbers(found.network, number)
        layout = recorded.require_layout()
        assert (layout.size, layout.key_size) == (queries.shape, keys.shape)
        windows = weights.shape[1] if weights.dim() == 5 else 1
        weights = weights.reshape(2, windows, *weights.shape[-3:])  # B, L, H, queries, keys
        assert recorded.heads == (1, 2, 2, 4, 4, 8)[number]
        positions = [(row, column) for row in range(queries.shape[0]) for column in range(queries.shape[1])]
        maps = recorded.maps(positions, image=1)
        for position, (row, column) in enumerate(positions):
            token, window = divmod(int(queries[row, column]), windows)
            seen = weights[1, window, :, token][:, keys // windows]
            expected = seen * (keys % windows == window)
            torch.testing.assert_close(maps.combined[:, position], expected, **EXACT)
        values = torch.randn(keys.numel(), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        applied = recorded.terms("all", image=1).applied("combined", values)
        torch.testing.assert_close(applied, maps.combined.flatten(2) @ values, **EXACT)


@pytest.mark.parametrize("name", HIERAS)
def test_ablation_of_mask_units_affects_a_head_and_not_a_window(name: str) -> None:
    """Without both terms, a head attends uniformly inside its window."""
    found = family(name)
    with capture(found.network) as attention, ablate(found.network, "both", heads=0):
        found.run()
    for recorded in attention.values():
        assert isinstance(recorded, RecordedAttention)
        weights = recorded.weights()
        torch.testing.assert_close(weights[:, 0], torch.full_like(weights[:, 0], 1 / weights.shape[-1]), **EXACT)
        assert (weights[:, 1:].amax(dim=-1) > 1.0001 / weights.shape[-1]).all()


def test_masked_tokens_have_no_layout() -> None:
    network = family("timm Hiera").network
    with capture(network) as attention, torch.no_grad():
        network(torch.rand(1, 3, 64, 32, dtype=torch.float64), mask=torch.tensor([[True, False]]))
    with pytest.raises(ValueError, match=r"16 x 8 tokens .* 1 windows of 64 .*a mask"):
        next(iter(attention.values())).maps([(0, 0)])


@pytest.mark.parametrize("name", ["timm MobileViT", "timm Swin", "torchvision Swin V2", "timm Hiera"])
def test_terms_of_windows(name: str) -> None:
    """A window's pairwise map times its unary map is its attention, up to normalisation and bias (Eq. 5)."""
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    recorded = list(attention.values())[1]
    assert isinstance(recorded, RecordedAttention)
    maps = recorded.maps([(3, 2), (5, 3)], image=1)
    assert maps.unary is not None
    torch.testing.assert_close(maps.unary.sum(dim=(1, 2)), torch.ones(recorded.heads, dtype=torch.float64), **EXACT)
    product = maps.pairwise * maps.unary[:, None]
    product = product / product.sum(dim=(2, 3), keepdim=True)
    assert torch.equal(product > 0, maps.combined > 0)
    if not found.biased:
        torch.testing.assert_close(product, maps.combined, **EXACT)
    mean = recorded.maps([(3, 2), (5, 3)], "mean", image=1)
    torch.testing.assert_close(mean.combined, maps.combined.mean(dim=0, keepdim=True), **EXACT)


def test_mobilevit_attends_to_positions_with_equal_offset() -> None:
    found = family("timm MobileViT")
    own = found.own()
    with capture(found.network) as attention:
        found.run()
    recorded, weights = next(iter(attention.values())), own[0]
    assert recorded.require_layout().size == (8, 12)
    (row, column), (down, across) = query = (5, 6), (2, 2)
    combined = recorded.maps([query[0]], image=1).combined[:, 0]
    offset = (row % down) * across + column % across
    of_query = weights[4 + offset, :, (row // down) * (12 // across) + column // across]
    torch.testing.assert_close(
        combined[:, row % down :: down, column % across :: across].flatten(1), of_query, **EXACT
    )
    torch.testing.assert_close(combined.sum(dim=(1, 2)), torch.ones(recorded.heads, dtype=torch.float64), **EXACT)
