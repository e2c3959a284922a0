from collections import Counter
from pathlib import Path

import pytest

from dnlnet.video.data.opening import open_video
from dnlnet.video.data.ucf101 import fold_splits, own_splits, ucf101
from dnlnet.video.data.videos import LabelledVideos, VideoEntry
from video_trees import grouped_ucf101, ucf101_tree

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


UNEVEN = {"Fencing": (1, 7, 2, 4, 3), "Surfing": (4, 4, 4), "YoYo": (2, 2, 2, 2)}


def parts_of(root: Path, folds: int) -> list[tuple[LabelledVideos, LabelledVideos]]:
    splits = (fold_splits(fold, folds) for fold in range(1, folds + 1))
    return [(ucf101(root, train).require_usable(), ucf101(root, test).require_usable()) for train, test in splits]


def group_of(entry: VideoEntry) -> str:
    return entry.path.stem.rpartition("_c")[0]


@pytest.mark.parametrize("folds", [2, 3])
def test_folds_keep_groups_together_and_test_every_video_once(folds: int, tmp_path: Path) -> None:
    parts = parts_of(grouped_ucf101(tmp_path, UNEVEN), folds)
    tested = Counter(entry for _, test in parts for entry in test.videos)
    assert len(tested) == 37
    assert set(tested.values()) == {1}
    for train, test in parts:
        assert {*train.videos, *test.videos} == set(tested)
        assert not {*map(group_of, train.videos)} & {*map(group_of, test.videos)}
        assert {entry.label for entry in train.videos} == {entry.label for entry in test.videos} == {0, 1, 2}


def test_folds_are_balanced_and_do_not_depend_on_the_order_of_the_lists(tmp_path: Path) -> None:
    root = grouped_ucf101(tmp_path, UNEVEN)
    before = [set(test.videos) for _, test in parts_of(root, 3)]
    assert [Counter(entry.label for entry in test) for test in before] == [
        {0: 7, 1: 4, 2: 2},
        {0: 5, 1: 4, 2: 4},
        {0: 5, 1: 4, 2: 2},
    ]
    for path in root.glob("*list01.txt"):
        path.write_text("\n".join(reversed(path.read_text().splitlines())))
    assert [set(test.videos) for _, test in parts_of(root, 3)] == before


def test_a_missing_video_moves_no_other_to_another_fold(tmp_path: Path) -> None:
    root = grouped_ucf101(tmp_path, UNEVEN)
    before = ucf101(root, "test1of3")
    (root / "videos/Fencing/v_Fencing_g02_c01.avi").unlink()
    after = ucf101(root, "test1of3")
    assert len(after) == len(before) - len(after.missing) == len(before) - 1


@pytest.mark.parametrize("split", ["test0of3", "train4of3"])
def test_folds_are_counted_from_1(split: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{split}: expected a fold of 1\.\.3"):
        ucf101(grouped_ucf101(tmp_path, UNEVEN), split)


def test_a_class_with_fewer_groups_than_folds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Surfing has 3 groups of clips, too few for 4 folds"):
        ucf101(grouped_ucf101(tmp_path, UNEVEN), "test1of4")


def test_a_name_without_a_group_is_refused_in_one_sentence(tmp_path: Path) -> None:
    root = grouped_ucf101(tmp_path, UNEVEN)
    (root / "testlist01.txt").write_text("YoYo/v_YoYo_c01.avi\nYoYo/v_YoYo_g01_c01.avi\n")
    videos = ucf101(root, "train1of3")
    assert [problem.path.name for problem in videos.faults] == ["v_YoYo_c01.avi"]
    with pytest.raises(ValueError, match=r"v_YoYo_c01\.avi: has no group in its name; .* v_YoYo_g01"):
        videos.require_usable()


def test_folds_of_the_real_videos_are_even(real_data: Path) -> None:
    parts = parts_of(real_data / "ucf101_6cls", 3)
    assert [(len(train), len(test)) for train, test in parts] == [(60, 30)] * 3
    assert len({entry for _, test in parts for entry in test.videos}) == 90
    for _, test in parts:
        assert [sum(entry.label == label for entry in test.videos) for label in range(6)] == [5] * 6


def test_the_real_lists_match_the_videos(real_data: Path) -> None:
    root = real_data / "ucf101_6cls"
    assert own_splits(root) == ["train01", "test01"]
    train, test = (ucf101(root, split).require_usable() for split in own_splits(root))
    assert (len(train), len(test), train.missing, test.missing) == (60, 30, (), ())
    assert [sum(entry.label == label for entry in train.videos) for label in range(6)] == [10] * 6
    with open_video(test.videos[0].path) as video:
        assert video.frames([0.0, 1.0], short_side=32).shape == (2, 32, 43, 3)
