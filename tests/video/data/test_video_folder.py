from pathlib import Path

import pytest

from dnlnet.video.data.opening import open_video
from dnlnet.video.data.video_folder import own_splits, video_folder
from video_trees import video_folder_tree


def test_the_class_of_a_video_is_its_folder(tmp_path: Path) -> None:
    videos = video_folder(video_folder_tree(tmp_path), "train").require_usable()
    assert videos.classes.names == ("jump", "run", "swim")
    assert [(entry.path.name, entry.label) for entry in videos.videos] == [
        ("frames", 0),
        ("a.webm", 1),
        ("b.mp4", 1),
        ("c.MKV", 2),
    ]
    for entry in videos.videos:
        with open_video(entry.path) as video:
            assert len(video) == 6


def test_a_split_without_some_classes_has_the_same_labels(tmp_path: Path) -> None:
    videos = video_folder(video_folder_tree(tmp_path), "val")
    assert videos.classes.names == ("jump", "run", "swim")
    assert [entry.label for entry in videos.videos] == [1]


def test_a_folder_without_images_is_reported_and_skipped(tmp_path: Path) -> None:
    root = video_folder_tree(tmp_path)
    (root / "val" / "run" / "nothing").mkdir()
    (root / "val" / "run" / ".hidden").mkdir()
    videos = video_folder(root, "val").require_usable()
    assert [problem.path for problem in videos.missing] == [root / "val" / "run" / "nothing"]
    assert len(videos) == 1


def test_other_folders_are_refused(tmp_path: Path) -> None:
    root = video_folder_tree(tmp_path / "data")
    assert own_splits(root) == ["train", "val"]
    with pytest.raises(ValueError, match="unknown split 'test'; known: train, val"):
        video_folder(root, "test")
    (tmp_path / "empty" / "train" / "run").mkdir(parents=True)
    (root / "lists" / "old").mkdir(parents=True)
    assert own_splits(root) == ["train", "val"]
    with pytest.raises(FileNotFoundError, match="empty: has no videos in folders of folders, such as train/<class>/"):
        own_splits(tmp_path / "empty")
