import json
from pathlib import Path

from dnlnet.video.data.check import check_videos
from dnlnet.video.data.sets import DATA_SETS
from dnlnet.video.data.video_folder import video_folder
from observer import Recorder
from trees import truncate
from video_trees import turn, video_folder_tree, write_frames, write_sound, write_video


def test_a_valid_data_set_is_counted(tmp_path: Path) -> None:
    root = video_folder_tree(tmp_path)
    turn(root / "train" / "run" / "b.mp4", 90)
    recorder = Recorder()
    report = check_videos(video_folder(root, "train"), recorder)
    assert (report.name, report.videos, report.problems) == ("video_folder train", 4, ())
    assert (report.class_names, report.class_videos) == (("jump", "run", "swim"), (1, 2, 1))
    assert report.sizes == {(64, 48): 3, (48, 64): 1}
    assert [round(seconds, 2) for seconds in report.seconds] == [0.2] * 4
    assert [round(rate) for rate in report.rates] == [30] * 4
    assert recorder.done("video_folder train") == [1, 2, 3, 4]


def test_every_kind_of_fault_is_found_in_one_run(tmp_path: Path) -> None:
    root = tmp_path / "train" / "a"
    truncate(write_video(root / "cut.mp4", 100, container={"movflags": "faststart"}), 0.6)
    (tmp_path / "train" / "a" / "empty.mp4").touch()
    truncate(write_frames(root / "frames", 5) / "frame_3.png")
    write_video(root / "good.avi")
    content = bytearray(write_video(root / "hole.mp4", 60).read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    (root / "hole.mp4").write_bytes(content)
    write_sound(root / "sound.mp4")
    (root / "text.webm").write_text("not a video")
    (root / "void").mkdir()
    report = check_videos(video_folder(tmp_path, "train"))
    found = [str(problem).removeprefix(f"{root}/") for problem in report.problems]
    expected = [
        "void: is a folder without images",
        "cut.mp4: is cut off: ",
        "empty.mp4: is empty",
        "frames: 1 of 5 frames cannot be decoded",
        "frames: frame_3.png cannot be read: ",
        "hole.mp4: ",
        "sound.mp4: has sound but no video",
        "text.webm: is not a video",
    ]
    assert len(found) == len(expected), found
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found
    assert found[5].endswith("of 60 frames cannot be decoded")
    assert (report.videos, len(report.seconds), report.sizes) == (7, 4, {(64, 48): 4})


def test_the_report_can_be_written_as_json(tmp_path: Path) -> None:
    root = video_folder_tree(tmp_path)
    (root / "val" / "run" / "d.avi").write_bytes(b"")
    content = json.loads(json.dumps(check_videos(video_folder(root, "val")).to_json()))
    assert content["classes"][1] == {"name": "run", "videos": 1}
    assert (content["videos"], content["readable"], content["seconds"], content["sizes"]) == (1, 0, None, [])
    assert [problem["path"] for problem in content["problems"]] == [str(root / "val" / "run" / "d.avi")]
    content = check_videos(video_folder(root, "train")).to_json()
    assert content["sizes"] == [{"width": 64, "height": 48, "videos": 4}]


def test_all_real_clips_decode(real_data: Path) -> None:
    splits, missing = DATA_SETS["ucf101"].open_all(real_data / "ucf101_6cls")
    assert missing == {}
    reports = [check_videos(videos) for videos in splits.values()]
    assert [(report.videos, len(report.seconds), report.problems) for report in reports] == [
        (60, 60, ()),
        (30, 30, ()),
    ]
    assert [report.sizes for report in reports] == [{(320, 240): 60}, {(320, 240): 30}]
    assert [report.class_videos for report in reports] == [(10,) * 6, (5,) * 6]
