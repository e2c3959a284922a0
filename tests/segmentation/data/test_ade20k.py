import shutil
from pathlib import Path

import numpy as np
import pytest

from dnlnet.data.problems import BadFileError
from dnlnet.segmentation.data.ade20k import CLASSES, ade20k
from trees import ade20k_tree, repeated, write_labels


@pytest.mark.parametrize("inner", ["", "ADEChallengeData2016"])
def test_the_root_may_be_the_folder_or_its_parent(tmp_path: Path, inner: str) -> None:
    root = ade20k_tree(tmp_path) / inner
    train, val = ade20k(root, "train").require_complete(), ade20k(root, "val").require_complete()
    assert (len(train), len(val)) == (3, 2)
    assert all(pair.image.stem == pair.labels.stem for pair in (*train.pairs, *val.pairs))


def test_void_is_ignored_and_classes_start_at_zero(tmp_path: Path) -> None:
    images = ade20k(ade20k_tree(tmp_path), "val")
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([255, *range(150)])


def test_a_label_above_150_is_an_error(tmp_path: Path) -> None:
    images = ade20k(ade20k_tree(tmp_path), "val")
    write_labels(images.pairs[0].labels, (151,))
    with pytest.raises(BadFileError, match=r"label 151 at row 0, column 0; .*1\.\.150"):
        images.decoded(0, images.open_labels(0))


def test_a_missing_label_file_is_a_problem(tmp_path: Path) -> None:
    root = ade20k_tree(tmp_path)
    (root / "ADEChallengeData2016" / "annotations" / "training" / "ADE_train_00000002.png").unlink()
    images = ade20k(root, "train")
    assert [pair.image.stem[-1] for pair in images.pairs] == ["1", "3"]
    assert [problem.path.name for problem in images.problems] == ["ADE_train_00000002.jpg"]


def test_the_150_names_and_colours_are_distinct() -> None:
    assert len(set(CLASSES.names)) == len(set(CLASSES.palette)) == 150


def test_names_equal_the_challenge_table(real_data: Path) -> None:
    lines = (real_data / "ade20k_3" / "objectInfo150.txt").read_text().splitlines()[1:]
    assert [line.split("\t")[4].split(",")[0].strip() for line in lines] == list(CLASSES.names)


def test_real_labels_are_decoded(real_data: Path, tmp_path: Path) -> None:
    for kind in ("images", "annotations"):
        shutil.copytree(real_data / "ade20k_3" / kind, tmp_path / "ADEChallengeData2016" / kind / "validation")
    images = ade20k(tmp_path, "val").require_complete()
    assert len(images) == 3
    _, raw = images.open(0)
    labels = images.decoded(0, raw)
    np.testing.assert_array_equal(labels, np.asarray(raw) - np.uint8(1))  # 0 - 1 wraps around to 255
    order = np.argsort(-np.bincount(labels[labels != 255], minlength=150))
    assert [CLASSES.names[label] for label in order[:3]] == ["sky", "building", "grass"]
