from pathlib import Path

import numpy as np
import pytest

from dnlnet.data.problems import BadFileError
from dnlnet.segmentation.data.camvid import CLASSES, camvid
from trees import camvid_tree, repeated, write_labels


def stems(root: Path, split: str) -> list[str]:
    return [pair.image.stem for pair in camvid(root, split).pairs]


def test_the_list_names_files_by_stem_whatever_its_root_and_suffix(tmp_path: Path) -> None:
    images = camvid(camvid_tree(tmp_path), "train").require_complete()
    assert [pair.image for pair in images.pairs] == [tmp_path / "train" / f"0001TP_00000{n}.jpg" for n in (2, 0)]
    assert [pair.labels for pair in images.pairs] == [
        tmp_path / "trainannot" / f"0001TP_00000{n}.png" for n in (2, 0)
    ]


def test_without_a_list_all_files_of_the_folder_count(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "train.txt").unlink()
    assert stems(root, "train") == ["0001TP_000000", "0001TP_000001", "0001TP_000002"]
    assert stems(root, "test") == ["0001TP_000000"]


def test_a_listed_picture_without_image_or_labels_is_a_problem(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "train" / "0001TP_000002.jpg").unlink()
    (root / "trainannot" / "0001TP_000000.png").unlink()
    images = camvid(root, "train")
    assert len(images) == 0
    assert [str(problem) for problem in images.problems] == [
        f"{root}/train.txt: line 1 names 0001TP_000002, which has no image",
        f"{root}/train.txt: line 2 names 0001TP_000000, which has no label file",
    ]


def test_a_picture_listed_twice_counts_once_and_is_a_problem(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "train.txt").write_text("0001TP_000001.png\n\n0001TP_000001\n")
    images = camvid(root, "train")
    assert [pair.image.stem for pair in images.pairs] == ["0001TP_000001"]
    expected = f"{root}/train.txt: line 3 names 0001TP_000001 again, after line 1"
    assert [str(problem) for problem in images.problems] == [expected]


def test_eleven_classes_and_void(tmp_path: Path) -> None:
    images = camvid(camvid_tree(tmp_path), "val")
    assert len(images.classes) == 11
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([*range(11), 255])


@pytest.mark.parametrize("label", [12, 255])
def test_a_label_above_11_is_an_error(tmp_path: Path, label: int) -> None:
    images = camvid(camvid_tree(tmp_path), "val")
    write_labels(images.pairs[0].labels, (label,))
    with pytest.raises(BadFileError, match=rf"label {label} at row 0, column 0; expected 0..10 or 11 \(void\)"):
        images.decoded(0, images.open_labels(0))


@pytest.mark.parametrize(("split", "count"), [("train", 367), ("val", 101)])
def test_the_real_split_is_complete_and_its_labels_fit(real_data: Path, split: str, count: int) -> None:
    images = camvid(real_data / "camvid", split).require_complete()
    assert len(images) == count
    for index in (0, count // 2, count - 1):
        image, raw = images.open(index)
        labels = images.decoded(index, raw)
        assert image.size == (480, 360)
        road = CLASSES.names.index("Road")
        # The camera looks along the road: most of what lies straight ahead at the bottom is road.
        assert np.mean(labels[-60:, 180:300] == road) > 0.5
