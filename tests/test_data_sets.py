import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dnlnet.data.catalog import find_data_set
from dnlnet.data.labelled import LabelledImages, find_labels
from dnlnet.registry import data_sets
from dnlnet.segmentation.data.sets import DATA_SETS
from dnlnet.video.data.sets import DATA_SETS as VIDEO_DATA_SETS
from trees import (
    ade20k_tree,
    camvid_tree,
    cityscapes_tree,
    colour_folder_tree,
    folder_tree,
    oxford_pets_tree,
    pascal_context_tree,
)
from video_trees import kinetics_tree, ucf101_tree, video_folder_tree


def open_split(name: str, root: Path, split: str) -> Any:
    return find_data_set({known: row for known, (_, row) in data_sets().items()}, name).open(root, split)


def open_splits(name: str, root: Path) -> tuple[dict[str, Any], dict[str, str]]:
    return find_data_set({known: row for known, (_, row) in data_sets().items()}, name).open_all(root)


TREES: dict[str, Callable[[Path], Path]] = {
    "cityscapes": cityscapes_tree,
    "ade20k": ade20k_tree,
    "pascal_context": pascal_context_tree,
    "pascal_context_60": pascal_context_tree,
    "camvid": camvid_tree,
    "oxford_pets": oxford_pets_tree,
    "folder": folder_tree,
}
COUNTS = {
    "cityscapes": {"train": 3, "val": 1, "trainval": 4, "coarse": 1},
    "ade20k": {"train": 3, "val": 2},
    "pascal_context": {"train": 2, "val": 1},
    "pascal_context_60": {"train": 2, "val": 1},
    "camvid": {"train": 2, "val": 1, "test": 1},
    "oxford_pets": {"trainval": 2, "test": 1},
    "folder": {"train": 2, "val": 1},
}
VIDEO_TREES: dict[str, Callable[[Path], Path]] = {
    "kinetics": kinetics_tree,
    "ucf101": ucf101_tree,
    "video_folder": video_folder_tree,
}
VIDEO_COUNTS = {
    "kinetics": {"train": 3, "val": 1},
    "ucf101": {"train01": 4, "train02": 4, "test01": 2, "test02": 2},
    "video_folder": {"train": 4, "val": 1},
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_split_of_every_data_set_opens_and_decodes(name: str, tmp_path: Path) -> None:
    root = TREES[name](tmp_path)
    opened = {split: open_split(name, root, split).require_complete() for split in COUNTS[name]}
    assert {split: len(images) for split, images in opened.items()} == COUNTS[name]
    assert DATA_SETS[name].splits in (tuple(COUNTS[name]), ())
    for images in opened.values():
        assert images.name.startswith(f"{name} ")
        assert len(images.classes) == len(DATA_SETS[name].classes or (1, 2, 3))
        image, raw = images.open(0)
        labels = images.decoded(0, raw)
        assert labels.shape == (image.height, image.width)
        assert sorted(set(labels.ravel().tolist())) == [*range(len(images.classes)), 255]


@pytest.mark.parametrize("name", DATA_SETS)
def test_images_can_be_sent_to_a_worker(name: str, tmp_path: Path) -> None:
    images = open_split(name, TREES[name](tmp_path), next(iter(COUNTS[name])))
    sent: LabelledImages = pickle.loads(pickle.dumps(images))
    raw = images.open_labels(0)
    assert sent.pairs == images.pairs
    assert sent.decoded(0, raw).tolist() == images.decoded(0, raw).tolist()


@pytest.mark.parametrize("name", DATA_SETS)
def test_composed_splits_are_not_part_of_all_splits(name: str, tmp_path: Path) -> None:
    opened, missing = open_splits(name, TREES[name](tmp_path))
    assert list(opened) == [split for split in COUNTS[name] if split not in DATA_SETS[name].joined]
    assert missing == {}


def test_a_missing_split_is_skipped_with_the_reason(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "testannot").rename(root / "other")
    opened, missing = open_splits("camvid", root)
    assert list(opened) == ["train", "val"]
    assert missing == {"test": f"{root}/testannot: no such folder"}


def test_a_requested_but_missing_split_names_the_others(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    shutil.rmtree(root / "val")
    with pytest.raises(FileNotFoundError, match=r"/val: .*train, test.*camvid"):
        open_split("camvid", root, "val")
    with pytest.raises(FileNotFoundError, match=r"test\.csv: .*train, val"):
        open_split("kinetics", kinetics_tree(tmp_path / "kinetics"), "test")


@pytest.mark.parametrize("opened", [lambda name, root: open_split(name, root, next(iter(COUNTS[name]))), open_splits])
@pytest.mark.parametrize("name", DATA_SETS)
def test_an_unrelated_folder_reports_the_expected_layout(
    name: str, opened: Callable[[str, Path], object], tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    message = f"^{tmp_path}/.*: .*{name} .*{re.escape(DATA_SETS[name].layout)}"
    with pytest.raises(FileNotFoundError, match=message):
        opened(name, tmp_path)


@pytest.mark.parametrize("name", ["cityscapes", "camvid", "folder"])
def test_a_subfolder_that_looks_right_is_suggested(name: str, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    inner = TREES[name](tmp_path / "inner")
    for opened in (lambda: open_split(name, tmp_path, "val"), lambda: open_splits(name, tmp_path)):
        with pytest.raises(FileNotFoundError, match=f": .*{inner}"):
            opened()


def test_the_parent_folder_is_suggested_if_it_looks_right(tmp_path: Path) -> None:
    root = cityscapes_tree(tmp_path / "cityscapes")
    with pytest.raises(FileNotFoundError, match=f"; {root} "):
        open_split("cityscapes", root / "leftImg8bit", "val")


def test_folders_without_images_are_not_a_data_set(tmp_path: Path) -> None:
    for part in ("train", "trainannot"):
        (tmp_path / part).mkdir()
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}: .*train.*camvid"):
        open_split("camvid", tmp_path, "train")


def test_a_root_that_does_not_exist_or_is_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: .*camvid .*\{train,val,test\}/\*"):
        open_split("camvid", tmp_path / "nowhere", "train")
    (tmp_path / "camvid.zip").touch()
    with pytest.raises(FileNotFoundError, match=r"camvid\.zip: .*camvid "):
        open_splits("camvid", tmp_path / "camvid.zip")


def test_unknown_names_and_splits_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'cityscape'.*'cityscapes'"):
        open_split("cityscape", tmp_path, "train")
    with pytest.raises(ValueError, match=r"'trian'.*'train'.*train, val, test"):
        open_split("camvid", tmp_path, "trian")
    with pytest.raises(ValueError, match=r"'test'.*train, val$"):
        open_split("folder", folder_tree(tmp_path), "test")


def test_a_wrong_classes_file_is_reported_unchanged(tmp_path: Path) -> None:
    (colour_folder_tree(tmp_path) / "classes.yaml").write_text("names: 3")
    with pytest.raises(ValueError, match=r"classes\.yaml: names=3: .*list"):
        open_splits("folder", tmp_path)


def test_labels_of_an_image_are_found_by_its_file(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    images = open_split("camvid", root, "val")
    image = images.pairs[0].image
    labels = find_labels([images], image.parent / ".." / image.parent.name / image.name)
    assert np.array_equal(labels, images.decoded(0, images.open(0)[1]))
    copy = tmp_path / image.name
    copy.write_bytes(image.read_bytes())
    assert find_labels(open_splits("camvid", root)[0].values(), copy) is None


@pytest.mark.parametrize("name", VIDEO_DATA_SETS)
def test_every_split_of_every_video_data_set_opens(name: str, tmp_path: Path) -> None:
    root = VIDEO_TREES[name](tmp_path / "data")
    opened, missing = open_splits(name, root)
    assert {split: len(videos.require_usable()) for split, videos in opened.items()} == VIDEO_COUNTS[name]
    assert list(missing) == (["test"] if name == "kinetics" else [])
    for split, videos in opened.items():
        again = open_split(name, root, split)
        assert (again.name, list(again.videos)) == (f"{name} {split}", list(videos.videos))
        assert pickle.loads(pickle.dumps(videos)) == videos
    first = next(iter(opened))
    with pytest.raises(FileNotFoundError, match=f"; {name} .*; {root} "):
        open_split(name, tmp_path, first)
