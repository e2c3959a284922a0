import numpy as np
import pytest
from PIL import Image
from torch import nn

from dnlnet.data.classes import Classes
from dnlnet.segmentation.data import cityscapes
from dnlnet.segmentation.drawing import add_legend, draw_outlines
from dnlnet.segmentation.outputs import SUBMISSIONS, SegmentationOutputs
from dnlnet.segmentation.predictor import Prediction, SegmentationModel

CLASSES = Classes(["sky", "road", "car"], [(0, 0, 250), (90, 90, 90), (250, 0, 0)])


def prediction() -> Prediction:
    labels = np.zeros((40, 100), dtype=np.uint8)
    labels[30:] = 1
    labels[35:, :2] = 2  # 0.25 %
    return Prediction(np.zeros((40, 100, 3), dtype=np.uint8), labels, CLASSES)


def test_a_line_contains_the_main_classes_with_their_shares() -> None:
    outputs = SegmentationOutputs(SegmentationModel(nn.Identity(), CLASSES))
    assert outputs.say(prediction()) == "sky 75 %, road 25 %"


def test_an_overlay_has_outlines_in_full_colour() -> None:
    found = prediction()
    drawn = draw_outlines(found.overlay(), found.labels, CLASSES)
    assert drawn[29, 50].tolist() == [0, 0, 250]
    assert drawn[30, 50].tolist() == [90, 90, 90]
    assert drawn[10, 50].tolist() == [0, 0, 125]  # inside a region: half its colour


def test_the_legend_is_below_the_image_and_has_only_present_classes() -> None:
    found = prediction()
    drawn = add_legend(found.overlay(), CLASSES, found.shares())
    assert np.array_equal(drawn[:40], found.overlay())
    below = {colour for _, colour in Image.fromarray(drawn[40:]).getcolors(10_000)}
    assert {(0, 0, 250), (90, 90, 90)} <= below
    assert (250, 0, 0) not in below


def test_cityscapes_files_have_the_numbers_and_names_of_the_server() -> None:
    cityscapes_format = SUBMISSIONS["cityscapes"]
    labels = np.arange(19, dtype=np.uint8)[None]
    encoded = cityscapes_format.encode(labels)
    assert encoded[0].tolist() == [7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33]
    np.testing.assert_array_equal(cityscapes._DECODE(encoded), labels)
    assert cityscapes_format.name("berlin_000000_000019_leftImg8bit") == "berlin_000000_000019_pred_labelIds"
    with pytest.raises(ValueError, match="holiday"):
        cityscapes_format.name("holiday")


@pytest.mark.parametrize(
    ("name", "first", "last"), [("ade20k", 1, 150), ("pascal_context", 1, 59), ("pascal_context_60", 0, 59)]
)
def test_other_data_sets_start_at_their_first_number(name: str, first: int, last: int) -> None:
    count = last - first + 1
    encoded = SUBMISSIONS[name].encode(np.arange(count, dtype=np.uint8)[None])
    assert (encoded.min(), encoded.max()) == (first, last)
    assert SUBMISSIONS[name].name("2008_000001") == "2008_000001"
    with pytest.raises(ValueError, match=rf"class {count}: expected 0\.\.{count - 1}"):
        SUBMISSIONS[name].encode(np.array([[count]], dtype=np.uint8))
