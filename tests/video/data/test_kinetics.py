from pathlib import Path

import pytest

from dnlnet.video.data.kinetics import kinetics
from video_trees import kinetics_tree


@pytest.mark.parametrize("separator", [" ", ",", ", ", "\t", "  "])
def test_paths_and_labels_are_separated_in_any_usual_way(separator: str, tmp_path: Path) -> None:
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


def test_every_split_has_the_classes_of_all(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    assert kinetics(root, "val").classes.names == ("class 0", "class 1", "class 2")
    (root / "classes.txt").write_text("abseiling\nair drumming\nzumba\n")
    assert kinetics(root, "val").classes.names == ("abseiling", "air drumming", "zumba")


def test_lines_that_do_not_fit_are_faults(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "train.csv").write_text("label,youtube_id\nf.mp4 -1\nf.mp4 0\nf.mp4 1\nclips/c.mp4 3\n")
    (root / "classes.txt").write_text("a\nb\n")
    videos = kinetics(root, "train")
    assert [problem.text for problem in videos.faults] == [
        "line 1 is 'label,youtube_id'; expected a path and a label of 0..99999",
        "line 2 is 'f.mp4 -1'; expected a path and a label of 0..99999",
        "line 4 names f.mp4 again, after line 3",
        "c.mp4 has the label 3; classes.txt has 0..1",
    ]
    assert [entry.path.name for entry in videos.videos] == ["f.mp4"]


def test_a_video_that_is_not_there_is_missing(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "a b.mp4").unlink()
    videos = kinetics(root, "train").require_usable()
    assert (len(videos), [str(problem) for problem in videos.missing]) == (
        2,
        [f"{root}/a b.mp4: no such file or folder"],
    )


def test_a_list_that_is_not_there_and_an_unknown_split_are_refused(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"test\.csv: no such file"):
        kinetics(root, "test")
    with pytest.raises(ValueError, match="unknown split 'trian'; did you mean 'train'"):
        kinetics(root, "trian")


@pytest.mark.parametrize("label", ["100000", "9" * 400, "9" * 4400])
def test_a_label_without_end_is_a_fault(label: str, tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "train.csv").write_text(f"a b.mp4 {label}\n")
    videos = kinetics(root, "train")
    assert len(videos.classes) == 1  # of val.csv
    assert str(videos.faults[0]).endswith("expected a path and a label of 0..99999")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("run\nrun\n", "2 classes have the name 'run'; each needs its own"),
        ("run\n\x1b[31mred\n", r"a class has the name '\\x1b\[31mred'; expected text"),
    ],
)
def test_names_that_do_not_tell_classes_apart_are_refused(names: str, said: str, tmp_path: Path) -> None:
    (kinetics_tree(tmp_path) / "classes.txt").write_text(names)
    with pytest.raises(ValueError, match=rf"classes\.txt: {said}"):
        kinetics(tmp_path, "val")
