import pytest
import torch

from dnlnet.data import classes
from dnlnet.lens.measure.ground_truth import IGNORE, GroundTruth, boundary_map


def test_unlabelled_pixels_have_the_ignore_value_of_data_sets() -> None:
    assert IGNORE == classes.IGNORE


def test_padding_is_unlabelled_and_moves_the_labels_to_their_cells() -> None:
    truth = GroundTruth.of(torch.tensor([[0, 0, 1], [0, 0, 1]]), classes=2, width=1)
    padded = truth.padded((0.5, 0.75))
    assert padded.labels.tolist() == [[0, 0, 1, IGNORE]] * 2 + [[IGNORE] * 4] * 2
    assert padded.boundary.int().tolist() == [[0, 1, 1, 0]] * 2 + [[0] * 4] * 2
    assert padded.query_classes((2, 2)).tolist() == [0, 1, 2, 2]
    assert truth.padded((1, 1)).labels.tolist() == truth.labels.tolist()


@pytest.mark.parametrize("width", [1, 2, 5, 9])
@pytest.mark.parametrize("void_edges", [False, True])
def test_boundary_pixels_are_closer_than_the_width_to_a_contour(width: int, void_edges: bool) -> None:
    generator = torch.Generator().manual_seed(width)
    labels = torch.randint(0, 3, (3, 4), generator=generator).repeat_interleave(7, 0).repeat_interleave(6, 1)
    labels[labels == 2] = IGNORE
    height, wide = labels.shape
    contour = []
    for y in range(height):
        for x in range(wide):
            for v, u in ((y + 1, x), (y, x + 1)):
                if v == height or u == wide or labels[y, x] == labels[v, u]:
                    continue
                if void_edges or IGNORE not in (int(labels[y, x]), int(labels[v, u])):
                    contour += [(y, x), (v, u)]
    expected = torch.tensor(
        [
            [any((y - v) ** 2 + (x - u) ** 2 < width**2 for v, u in contour) for x in range(wide)]
            for y in range(height)
        ]
    )
    assert torch.equal(boundary_map(labels, width, void_edges), expected)


def test_a_boundary_wider_than_the_image_covers_it() -> None:
    assert boundary_map(torch.tensor([[0, 1, 1]]), width=50).all()


def test_a_boundary_width_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 pixel, got 0"):
        boundary_map(torch.zeros(3, 3), width=0)
