import numpy as np
import pytest

from dnlnet.data.classes import Classes, spread_colours


def test_labels_outside_the_classes_are_white() -> None:
    painted = Classes(["left", "right"], [(255, 0, 0), (0, 0, 255)]).paint(np.array([[0, 1, 255, -1]]))
    np.testing.assert_array_equal(painted, [[[255, 0, 0], [0, 0, 255], [255, 255, 255], [255, 255, 255]]])


def test_every_class_has_a_colour() -> None:
    with pytest.raises(ValueError, match="1 class names but 0 colours"):
        Classes(["a"], [])


def test_numbers_are_given_to_all_classes_or_to_none() -> None:
    with pytest.raises(ValueError, match="2 class names but 1 numbers; give each class one"):
        Classes(["a", "b"], spread_colours(2), [7])


def test_classes_are_values() -> None:
    classes = Classes(["a"], [(1, 2, 3)], [7])
    assert classes == Classes(("a",), ((1, 2, 3),), (7,))
    assert len({classes, Classes(("a",), ((1, 2, 3),), (7,))}) == 1


def test_spread_colours_are_all_different_and_those_of_voc() -> None:
    colours = spread_colours(255)
    assert len(set(colours)) == 255
    assert colours[14] == (192, 128, 128)  # person, the fifteenth class of VOC
    assert colours[19] == (0, 64, 128)  # television, the twentieth
