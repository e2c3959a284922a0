from pathlib import Path

import pytest

from dnlnet.data.problems import Problem
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, find_existing, named_classes

CLASSES = named_classes(["run", "jump"])


def test_listed_but_absent_videos_are_missing_and_the_others_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    (tmp_path / "frames").mkdir()
    entries = [VideoEntry(tmp_path / name, 0) for name in ("a.mp4", "b.mp4", "frames")]
    videos = find_existing("mine", CLASSES, entries)
    assert videos.videos == (entries[0], entries[2])
    assert videos.missing == (Problem(tmp_path / "b.mp4", "no such file or folder"),)
    assert videos.require_usable() is videos
    assert len(videos) == 2


def test_faults_in_the_lists_stop_everything() -> None:
    fault = Problem(Path("train.csv"), "line 3 is wrong")
    videos = LabelledVideos("mine", CLASSES, [VideoEntry(Path("a.mp4"), 0)], [fault], [Problem(Path("b"), "gone")])
    assert [problem.path.name for problem in videos.problems] == ["train.csv", "b"]
    with pytest.raises(ValueError, match=r"train\.csv: line 3 is wrong"):
        videos.require_usable()


def test_an_empty_data_set_is_refused_with_the_reason() -> None:
    gone = [Problem(Path("b.mp4"), "no such file")] * 3
    with pytest.raises(ValueError, match=r"none of the 3 listed videos of mine exists, such as b\.mp4"):
        LabelledVideos("mine", CLASSES, [], missing=gone).require_usable()
    with pytest.raises(ValueError, match="no videos found for mine; dnlnet data list shows"):
        LabelledVideos("mine", CLASSES, []).require_usable()
