import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dnlnet.segmentation.inference import tiled_labels


def local_labels(image: Tensor) -> Tensor:
    """Return labels that depend on two pixels around each position, so that a margin of two makes tiles exact."""
    smooth = F.avg_pool2d(image[None].double(), 5, stride=1, padding=2, count_include_pad=False)[0]
    return (smooth.sum(dim=0) > 382).to(torch.uint8)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(36, 900))
def test_tiles_equal_the_whole_image_if_the_margin_covers_the_receptive_field(
    height: int, width: int, max_pixels: int
) -> None:
    image = torch.randint(0, 256, (3, height, width), generator=torch.Generator().manual_seed(height))
    assert torch.equal(tiled_labels(local_labels, image, max_pixels, margin=2), local_labels(image))


def test_no_tile_is_larger_than_allowed() -> None:
    seen = []

    def recorded(image: Tensor) -> Tensor:
        seen.append(image[0].numel())
        return local_labels(image)

    tiled_labels(recorded, torch.zeros(3, 300, 500), max_pixels=10_000, margin=8)
    assert max(seen) <= 10_000
    assert len(seen) > 15


def test_a_margin_that_fills_the_tile_is_refused() -> None:
    with pytest.raises(ValueError, match=r"100 .*64"):
        tiled_labels(local_labels, torch.zeros(3, 50, 50), max_pixels=100)
