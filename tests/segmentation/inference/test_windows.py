import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dnlnet.segmentation.inference.windows import sliding_logits, starts


def network(images: Tensor) -> Tensor:
    """Return logits that depend on the position in the window, as in a real network."""
    rows = torch.linspace(0, 1, images.shape[2], dtype=images.dtype).view(1, 1, -1, 1)
    return torch.cat([images[:, :1] * rows, images[:, 1:2].cumsum(dim=3)], dim=1)


def plain(image: Tensor, window: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """Average windows pixel by pixel in a plain loop."""
    height, width = image.shape[-2:]
    h, w = min(window[0], height), min(window[1], width)
    total, count = torch.zeros(2, height, width, dtype=image.dtype), torch.zeros(height, width, dtype=image.dtype)
    y = 0
    while True:
        top = min(y, height - h)
        x = 0
        while True:
            left = min(x, width - w)
            logits = network(image[..., top : top + h, left : left + w])[0]
            for i in range(h):
                for j in range(w):
                    total[:, top + i, left + j] += logits[:, i, j]
                    count[top + i, left + j] += 1
            if left + w >= width:
                break
            x += min(stride[1], w)
        if top + h >= height:
            break
        y += min(stride[0], h)
    return (total / count)[None]


@settings(deadline=None, max_examples=25)
@given(
    size=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    window=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    share=st.tuples(st.floats(0.2, 1), st.floats(0.2, 1)),
    batch=st.integers(1, 5),
)
def test_windows_equal_a_plain_loop(
    size: tuple[int, int], window: tuple[int, int], share: tuple[float, float], batch: int
) -> None:
    stride = max(1, int(window[0] * share[0])), max(1, int(window[1] * share[1]))
    image = torch.rand(1, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(sliding_logits(network, image, window, stride, batch), plain(image, window, stride))


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_windows_cover_every_position_and_stay_inside(length: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    begun = starts(length, window, stride)
    covered = {position for start in begun for position in range(start, min(start + window, length))}
    assert covered == set(range(length))
    assert len(set(begun)) == len(begun)
    assert max(begun) == max(0, length - window)


def test_the_number_of_windows_per_batch_is_limited() -> None:
    seen = []

    def recorded(images: Tensor) -> Tensor:
        seen.append(images.shape)
        return images

    sliding_logits(recorded, torch.rand(1, 3, 30, 50), (8, 8), (5, 5), batch=3)
    assert all(shape[0] <= 3 for shape in seen)
    assert {tuple(shape[1:]) for shape in seen} == {(3, 8, 8)}


def test_a_stride_that_leaves_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a stride of 5 with windows of 4 leaves gaps; expected 1\.\.4"):
        starts(10, 4, 5)
