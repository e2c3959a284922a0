from pathlib import Path

import pytest

from dnlnet.video.data.kinetics import kinetics
from video_trees import kinetics_tree


@pytest.mark.parametrize("separator", [" ", ",", ", ", "\t", "  "])
def test_paths_and_labels_may_have_any_common_separator(separator: str, tmp_path: Path) -> None:
    videos = kinetics(kinetics_tree(tmp_path, separator), "train").require_usable()
    assert videos.name == "kinetics train"
    assert [(entry.path, entry.label) for entry in videos.videos] == [
        (tmp_path / "a b.mp4", 0),
        (tmp_path / "clips" / "c.mp4", 2),
        (tmp_path / "d,e.mp4", 1),
    ]
    assert videos.missing == ()


def test_paths_may_be_absolute_or_quoted(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "lists").mkdir()
    (root / "lists" / "val.csv").write_text(f'{root}/f.mp4 0\n"{root}/a b.mp4",1\n')
    videos = kinetics(root / "lists", "val").require_usable()
    assert [entry.path.name for entry in videos.videos] == ["f.mp4", "a b.mp4"]


def test_every_split_has_the_classes_of_all_splits(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    assert kinetics(root, "val").classes.names == ("class 0", "class 1", "class 2")
    (root / "classes.txt").write_text("abseiling\nair drumming\nzumba\n")
    assert kinetics(root, "val").classes.names == ("abseiling", "air drumming", "zumba")


def test_bad_lines_are_faults(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "train.csv").write_text("label,youtube_id\nf.mp4 -1\nf.mp4 0\nf.mp4 1\nclips/c.mp4 3\n")
    (root / "classes.txt").write_text("a\nb\n")
    videos = kinetics(root, "train")
    facts = [
        ["line 1", "'label,youtube_id'"],
        ["line 2", "'f.mp4 -1'"],
        ["line 4", "f.mp4", "line 3"],
        ["c.mp4", "label 3", "0..1"],
    ]
    for problem, expected in zip(videos.faults, facts, strict=True):
        assert all(fact in problem.text for fact in expected), problem.text
    assert [entry.path.name for entry in videos.videos] == ["f.mp4"]


def test_absent_videos_are_missing(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "a b.mp4").unlink()
    videos = kinetics(root, "train").require_usable()
    assert (len(videos), [str(problem) for problem in videos.missing]) == (
        2,
        [f"{root}/a b.mp4: no such file or folder"],
    )


def test_missing_lists_and_unknown_splits_are_refused(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"test\.csv: no such file"):
        kinetics(root, "test")
    with pytest.raises(ValueError, match=r"'trian'.*'train'"):
        kinetics(root, "trian")


@pytest.mark.parametrize("label", ["100000", "9" * 400, "9" * 4400])
def test_a_label_with_too_many_digits_is_a_fault(label: str, tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "train.csv").write_text(f"a b.mp4 {label}\n")
    videos = kinetics(root, "train")
    assert len(videos.classes) == 1  # only the class in val.csv
    assert str(videos.faults[0]).endswith("0..99999")


@pytest.mark.parametrize(
    ("names", "fact"),
    [("run\nrun\n", "2 classes .*'run'"), ("run\n\x1b[31mred\n", r"'\\x1b\[31mred'")],
)
def test_ambiguous_class_names_are_refused(names: str, fact: str, tmp_path: Path) -> None:
    (kinetics_tree(tmp_path) / "classes.txt").write_text(names)
    with pytest.raises(ValueError, match=rf"classes\.txt: .*{fact}"):
        kinetics(tmp_path, "val")
