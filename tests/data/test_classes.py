import numpy as np
import pytest
from numpy.typing import NDArray

from dnlnet.data.classes import Classes, distinct_colours, spread_colours


def test_labels_outside_the_classes_are_white() -> None:
    painted = Classes(["left", "right"], [(255, 0, 0), (0, 0, 255)]).paint(np.array([[0, 1, 255, -1]]))
    np.testing.assert_array_equal(painted, [[[255, 0, 0], [0, 0, 255], [255, 255, 255], [255, 255, 255]]])


def test_every_class_has_a_colour() -> None:
    with pytest.raises(ValueError, match="1 class names but 0 colours"):
        Classes(["a"], [])


def test_label_numbers_are_set_for_all_classes_or_none() -> None:
    with pytest.raises(ValueError, match="2 class names but 1 numbers; give each class one"):
        Classes(["a", "b"], spread_colours(2), [7])


def test_classes_compare_by_value() -> None:
    classes = Classes(["a"], [(1, 2, 3)], [7])
    assert classes == Classes(("a",), ((1, 2, 3),), (7,))
    assert len({classes, Classes(("a",), ((1, 2, 3),), (7,))}) == 1


def test_generated_colours_are_distinct_and_equal_vocs() -> None:
    colours = spread_colours(255)
    assert len(set(colours)) == 255
    assert colours[14] == (192, 128, 128)  # person, the fifteenth class of VOC
    assert colours[19] == (0, 64, 128)  # television, the twentieth


# Machado, Oliveira and Fernandes (2009): linear RGB with all receptors, without the red ones, and without the green
# ones.
SIGHTS = (
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
)
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert linear RGB to CIE L*a*b*."""
    x, y, z = np.cbrt(linear.clip(0, 1) @ XYZ.T / (0.9505, 1.0, 1.089)).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


@pytest.mark.parametrize("sight", SIGHTS, ids=("all", "no red", "no green"))
def test_generated_colours_are_distinguishable_with_colour_blindness(sight: NDArray[np.float64]) -> None:
    seen = lab((np.array(distinct_colours(24)) / 255) ** 2.2 @ sight.T)
    distances = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
    assert distances[~np.eye(24, dtype=bool)].min() > 12  # 2.3 is barely noticeable
