"""Attention inside of windows lands on the positions that the windows were cut out of."""

import pytest
import torch
from torch import Tensor

from dnlnet.lens import capture
from dnlnet.lens.recorded import Recorded
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
    """Number of the window of a position, and of the token in it, by plain arithmetic.

    torchvision and transformers pad the map and then shift it, unless a side has one window only; timm shifts it and
    then pads.
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
    """The attention of a query on the second of two images, (H, rows, columns), from weights (B L, H, n, n)."""
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
def test_maps_of_shifted_windows_are_in_their_place(name: str) -> None:
    found = family(name)
    own = found.own()
    window = 6 if name == "timm Swin, always in windows" else 4
    # transformers takes written-out softmaxes in single precision
    tolerance = {"rtol": 0, "atol": 1e-7} if name.startswith("transformers") else EXACT
    with capture(found.network) as attention:
        found.run()
    for number, (recorded, weights) in enumerate(zip(attention.values(), own, strict=True)):
        size = recorded.placed().size
        assert size == ((10, 14), (10, 14), (5, 7), (5, 7))[number]
        queries = [(0, 0), (size[0] - 1, size[1] - 1), (4, 6), (1, size[1] - 2), (3, 3)]
        maps = recorded.maps(queries, image=1)
        weights = weights.reshape(-1, *recorded.seen.query.shape[1:3], weights.shape[-1])
        for position, query in enumerate(queries):
            expected = expected_map(weights, query, size, window, window // 2 * (number % 2), name)
            torch.testing.assert_close(maps.combined[:, position], expected.double(), **tolerance)


@pytest.mark.parametrize("name", ["timm MobileViT", "timm Swin", "torchvision Swin V2"])
def test_terms_inside_of_windows(name: str) -> None:
    """A window's pairwise map times its unary map is its attention, up to the sum and the bias (Eq. 5)."""
    found = family(name)
    with capture(found.network) as attention:
        found.run()
    recorded = list(attention.values())[1]
    assert isinstance(recorded, Recorded)
    maps = recorded.maps([(3, 2), (5, 7)], image=1)
    assert maps.unary is not None
    torch.testing.assert_close(maps.unary.sum(dim=(1, 2)), torch.ones(recorded.heads, dtype=torch.float64), **EXACT)
    product = maps.pairwise * maps.unary[:, None]
    product = product / product.sum(dim=(2, 3), keepdim=True)
    assert torch.equal(product > 0, maps.combined > 0)
    if not found.biased:
        torch.testing.assert_close(product, maps.combined, **EXACT)
    mean = recorded.maps([(3, 2), (5, 7)], "mean", image=1)
    torch.testing.assert_close(mean.combined, maps.combined.mean(dim=0, keepdim=True), **EXACT)


def test_mobilevit_attends_to_positions_of_equal_offset() -> None:
    found = family("timm MobileViT")
    own = found.own()
    with capture(found.network) as attention:
        found.run()
    recorded, weights = next(iter(attention.values())), own[0]
    assert recorded.placed().size == (8, 12)
    (row, column), (down, across) = query = (5, 6), (2, 2)
    combined = recorded.maps([query[0]], image=1).combined[:, 0]
    offset = (row % down) * across + column % across
    of_query = weights[4 + offset, :, (row // down) * (12 // across) + column // across]
    torch.testing.assert_close(
        combined[:, row % down :: down, column % across :: across].flatten(1), of_query, **EXACT
    )
    torch.testing.assert_close(combined.sum(dim=(1, 2)), torch.ones(recorded.heads, dtype=torch.float64), **EXACT)
