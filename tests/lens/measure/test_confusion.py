import math

import pytest
import torch
from torch import Tensor

from dnlnet.lens.measure.confusion import ConfusionMatrix


def matrix_of(prediction: Tensor, labels: Tensor, classes: int) -> ConfusionMatrix:
    matrix = ConfusionMatrix(classes)
    matrix.update(prediction, labels)
    return matrix


def test_counts_equal_a_plain_double_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    prediction = torch.randint(0, 4, (3, 7, 5), generator=generator)
    labels = torch.randint(0, 4, (3, 7, 5), generator=generator)
    labels[:, 0] = 255
    expected = torch.zeros(4, 4, dtype=torch.int64)
    for guess, truth in zip(prediction.flatten().tolist(), labels.flatten().tolist(), strict=True):
        if truth != 255:
            expected[truth, guess] += 1
    assert torch.equal(matrix_of(prediction, labels, 4).counts, expected)


def test_iou_by_hand() -> None:
    # class 0: 2 both, 3 either; class 1: 1 both, 3 either; class 2: 1 both, 2 either
    matrix = matrix_of(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 2]), 3)
    assert matrix.iou().tolist() == pytest.approx([2 / 3, 1 / 2, 1])
    assert matrix.miou() == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)


def test_a_class_in_neither_is_nan_and_not_in_the_mean() -> None:
    matrix = matrix_of(torch.tensor([0, 0]), torch.tensor([0, 0]), 2)
    assert math.isnan(matrix.iou()[1])
    assert matrix.miou() == 1


def test_a_predicted_but_absent_class_scores_zero() -> None:
    assert matrix_of(torch.tensor([0, 1]), torch.tensor([0, 0]), 2).iou().tolist() == [0.5, 0]


def test_ignored_pixels_are_never_counted() -> None:
    matrix = matrix_of(torch.tensor([0, 1, 1]), torch.tensor([0, 255, 255]), 2)
    assert int(matrix.counts.sum()) == 1
    assert matrix.miou() == 1


def test_empty_counts_give_nan() -> None:
    assert math.isnan(ConfusionMatrix(3).miou())


def test_parts_add_up_to_the_whole() -> None:
    prediction, labels = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    total, other = matrix_of(prediction[:1], labels[:1], 2), matrix_of(prediction[1:], labels[1:], 2)
    total.merge(lambda counts: [counts, other.counts])
    assert torch.equal(total.counts, matrix_of(prediction, labels, 2).counts)


def test_labels_of_one_byte_do_not_overflow() -> None:
    labels = torch.tensor([18, 18, 255], dtype=torch.uint8)
    assert int(matrix_of(torch.tensor([18, 17, 0]), labels, 19).counts[18, 18]) == 1


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_outside_the_range_is_named(label: int) -> None:
    with pytest.raises(ValueError, match=rf"label {label} is outside 0\.\.1 and is not the ignore value 255"):
        matrix_of(torch.tensor([0]), torch.tensor([label]), 2)


def test_a_prediction_outside_the_range_is_named() -> None:
    with pytest.raises(ValueError, match=r"prediction 7 is outside 0\.\.1"):
        matrix_of(torch.tensor([7]), torch.tensor([0]), 2)


def test_scores_by_hand() -> None:
    matrix = matrix_of(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]), 3)
    assert matrix.scores() == {"miou": pytest.approx((1 / 2 + 2 / 3) / 2), "accuracy": 0.75}


def test_mismatched_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"prediction is \(2,\) but labels are \(3,\)"):
        matrix_of(torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), 2)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="classes must be at least 1, got 0"):
        ConfusionMatrix(0)
    with pytest.raises(ValueError, match="the ignore value 1 is also a class"):
        ConfusionMatrix(2, ignore=1)


def test_without_a_labelled_pixel_there_is_no_score() -> None:
    matrix = ConfusionMatrix(2)
    matrix.update(torch.zeros(4, dtype=torch.long), torch.full((4,), 255))
    assert matrix.count == 0
    assert matrix.known_scores() == {"miou": None, "accuracy": None}
    assert matrix.known_iou() == [None, None]
    matrix.update(torch.tensor([1]), torch.tensor([1]))
    assert (matrix.count, matrix.known_scores()) == (1, {"miou": 1.0, "accuracy": 1.0})
