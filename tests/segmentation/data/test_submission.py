import numpy as np
import pytest

from dnlnet.segmentation.data import cityscapes
from dnlnet.segmentation.data.submission import SUBMISSIONS


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
    with pytest.raises(ValueError, match="is none of the"):
        SUBMISSIONS[name].encode(np.array([[count]], dtype=np.uint8))
