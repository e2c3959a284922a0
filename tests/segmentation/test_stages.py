"""Windows of joined stages equal windows of the whole map interpolated by PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dnlnet.segmentation.stages import Features, Grid, join_stages


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([(8, 16, 32), (4, 32), (14, 14), (8,)]),
    st.integers(1, 12),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_windows_equal_those_of_the_whole(
    height: int, width: int, strides: tuple[int, ...], rows: int, columns: int, rng: object
) -> None:
    draw = rng.randint  # type: ignore[attr-defined]
    torch.manual_seed(0)
    maps = [torch.rand(2, -(-height // stride), -(-width // stride), dtype=torch.float64) for stride in strides]
    size = maps[0].shape[-2:]
    whole = torch.cat([F.interpolate(x[None], size, mode="bilinear", align_corners=False) for x in maps], dim=1)
    top, left = draw(0, max(0, size[0] - rows)), draw(0, max(0, size[1] - columns))
    cut = Grid(strides).window(maps, (top, left), (rows, columns))
    found = join_stages(Features([x[None] for x in cut.maps], [[x[None] for x in pair] for pair in cut.weights]))
    expected = whole[..., top : top + rows, left : left + columns]
    assert found.shape[-2:] == (rows, columns)
    torch.testing.assert_close(found[..., : expected.shape[2], : expected.shape[3]], expected, atol=1e-6, rtol=1e-6)
    assert not found[..., expected.shape[2] :, :].any()
    assert not found[..., expected.shape[3] :].any()


@pytest.mark.parametrize("height", [33, 45, 64])
def test_the_shape_of_a_window_does_not_depend_on_the_image(height: int) -> None:
    maps = [torch.rand(2, height, 60), torch.rand(3, -(-height // 2), 30), torch.rand(4, -(-height // 4), 15)]
    cut = Grid((8, 16, 32)).window(maps, (5, 28), (24, 32))
    assert [tuple(x.shape) for x in cut.maps] == [(2, 24, 32), (3, 15, 19), (4, 9, 11)]
