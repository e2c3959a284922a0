from pathlib import Path

import pytest

from dnlnet.video.data.opening import open_video
from dnlnet.video.data.ucf101 import own_splits, ucf101
from video_trees import ucf101_tree

PLACES = [("ucfTrainTestlist", "UCF-101"), (".", "videos"), (".", ".")]


@pytest.mark.parametrize("inner", PLACES, ids=lambda places: "/".join(places))
@pytest.mark.parametrize("first", [0, 1])
def test_labels_start_at_0_for_any_first_class_number(first: int, inner: tuple[str, str], tmp_path: Path) -> None:
    root = ucf101_tree(tmp_path, first, inner)
    train, test = (ucf101(root, split).require_usable() for split in ("train01", "test02"))
    assert train.classes.names == test.classes.names == ("ApplyLipstick", "YoYo")
    assert [entry.label for entry in train.videos] == [0, 0, 1, 1]
    assert [(entry.path.name, entry.label) for entry in test.videos] == [
        ("v_ApplyLipstick_g02_c01.avi", 0),
        ("v_YoYo_g02_c01.avi", 1),
    ]
    assert (train.name, train.missing) == ("ucf101 train01", ())


def test_the_splits_follow_the_lists(tmp_path: Path) -> None:
    root = ucf101_tree(tmp_path)
    assert own_splits(root) == ["train01", "train02", "test01", "test02"]
    with pytest.raises(ValueError, match="'train'"):
        ucf101(root, "train")


def test_bad_lines_are_faults_and_absent_videos_are_missing(tmp_path: Path) -> None:
    root = ucf101_tree(tmp_path)
    path = root / "ucfTrainTestlist" / "trainlist01.txt"
    path.write_text("YoYo/a.avi 1\nDiving/b.avi 2\nnothing\nYoYo/c.avi 2\n")
    videos = ucf101(root, "train01")
    assert [problem.path for problem in videos.problems] == [path] * 3 + [root / "UCF-101" / "YoYo" / "c.avi"]
    facts = [
        ["line 1", "class 1", "2 for YoYo"],
        ["line 2", "'Diving/b.avi 2'"],
        ["line 3", "'nothing'"],
        ["no such"],
    ]
    for problem, expected in zip(videos.problems, facts, strict=True):
        assert all(fact in problem.text for fact in expected), problem.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 A\nB\n", r"classInd\.txt: line 2 is 'B'"),
        ("1 A\n2 A\n", r"line 2 names A again"),
        ("1 A\n3 B\n", r"got \[1, 3\]"),
        ("5 A\n", r"got \[5\]"),
        ("", r"got \[\]"),
    ],
)
def test_a_wrong_list_of_classes_is_refused(content: str, message: str, tmp_path: Path) -> None:
    root = ucf101_tree(tmp_path)
    (root / "ucfTrainTestlist" / "classInd.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        ucf101(root, "train01")


def test_the_real_lists_match_the_videos(real_data: Path) -> None:
    root = real_data / "ucf101_6cls"
    assert own_splits(root) == ["train01", "test01"]
    train, test = (ucf101(root, split).require_usable() for split in own_splits(root))
    assert (len(train), len(test), train.missing, test.missing) == (60, 30, (), ())
    assert [sum(entry.label == label for entry in train.videos) for label in range(6)] == [10] * 6
    with open_video(test.videos[0].path) as video:
        assert video.frames([0.0, 1.0], short_side=32).shape == (2, 32, 43, 3)
