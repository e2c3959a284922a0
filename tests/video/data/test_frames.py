from pathlib import Path

import numpy as np
import pytest

from dnlnet.video.data.opening import open_video
from dnlnet.video.data.video import VideoError
from trees import save, truncate
from video_trees import SIZE, Frames, numbered_frame, shown_number, write_frames


def numbers(frames: Frames) -> list[int]:
    return [shown_number(frame) for frame in frames]


def test_empty_times_are_refused(tmp_path: Path) -> None:
    with (
        open_video(write_frames(tmp_path / "a")) as video,
        pytest.raises(ValueError, match="no times"),
    ):
        video.frames([])


def test_a_folder_of_frames_is_read_in_numerical_order(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", 12)
    (folder / "notes.txt").touch()
    with open_video(folder, folder_rate=10.0) as video:
        assert (len(video), video.duration, video.rate, video.size) == (12, 1.2, 10.0, SIZE)
        video.decoded = 0
        assert numbers(video.frames([1.1, 0.2, 0.0, 0.25])) == [11, 2, 0, 2]
        assert video.decoded == 3
        np.testing.assert_array_equal(video.frames([0.3])[0], numbered_frame(3))
        assert video.frames([0.0, 0.4], short_side=24).shape == (2, 24, 32, 3)
        assert (video.count_decodable(), video.notes) == (12, [])
    with pytest.raises(ValueError, match="got 0"):
        open_video(folder, folder_rate=0)


def test_frames_are_resized_to_the_size_of_the_first(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", 3)
    save(folder / "frame_2.png", numbered_frame(1, (96, 128)))
    with open_video(folder) as video:
        assert video.frames(video.times).shape == (3, *SIZE, 3)


def test_a_damaged_image_in_a_folder_is_named(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", 12)
    truncate(folder / "frame_5.png")
    with open_video(folder) as video:
        assert numbers(video.frames([0.0])) == [0]
        with pytest.raises(VideoError, match=f"^{folder}: frame_5.png cannot be read"):
            video.frames(video.times)
        assert video.count_decodable() == 11
        assert video.notes[0].startswith("frame_5.png cannot be read")
