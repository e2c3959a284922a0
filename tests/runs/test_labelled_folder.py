from pathlib import Path

import pytest

from dnlnet.runs.labelled_folder import find_labelled
from trees import camvid_tree


def test_a_folder_is_recognised_and_tested_on_its_validation_split(tmp_path: Path) -> None:
    folder = find_labelled(camvid_tree(tmp_path / "camvid"), None)
    assert folder.data_set.name == "camvid"
    assert folder.split() is folder.splits["val"]
    assert folder.split("test").name == "camvid test"
    assert folder.splits is folder.splits


def test_unknown_folders_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="looks like none of the known data sets"):
        find_labelled(tmp_path, None)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_labelled(tmp_path / "gone", None)
    with pytest.raises(ValueError, match="did you mean 'val'"):
        find_labelled(camvid_tree(tmp_path / "camvid"), "camvid").split("vall")
