import pickle
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from dnlnet.video.data.opening import is_video, open_video
from dnlnet.video.data.video import Video, VideoError
from trees import truncate
from video_trees import (
    CODECS,
    SIZE,
    Frames,
    shown_number,
    turn,
    write_frames,
    write_sound,
    write_video,
)

FRAMES = 40


def plain(path: Path) -> Frames:
    """Decode all frames in sequence."""
    with av.open(str(path)) as file:
        return np.stack([frame.to_ndarray(format="rgb24", threads=1) for frame in file.decode(video=0)])


def numbers(video: Video, times: object, short_side: int | None = None) -> list[int]:
    return [shown_number(frame) for frame in video.frames(np.asarray(times), short_side)]


KINDS = [
    *((suffix, codec, {}) for suffix, codec in CODECS.items()),
    (".mp4", "mpeg4", {"max_b_frames": 2}),
    (".avi", "mpeg4", {"max_b_frames": 2}),
    (".mkv", "libx264", {"max_b_frames": 2}),
    (".webm", "libvpx", {}),
    (".mpg", "mpeg2video", {"max_b_frames": 2}),
    (".ts", "libx264", {}),
]


@pytest.mark.parametrize(("suffix", "codec", "settings"), KINDS, ids=lambda value: str(value))
def test_frames_equal_those_of_sequential_decoding(
    suffix: str, codec: str, settings: dict[str, int], tmp_path: Path
) -> None:
    path = write_video(tmp_path / f"a{suffix}", FRAMES, codec=codec, **settings)
    expected = plain(path)
    with open_video(path) as video:
        assert (len(video), video.size, video.notes) == (len(expected), SIZE, [])
        np.testing.assert_array_equal(video.frames(video.times), expected)
        for first in range(0, len(expected), 7):
            chosen = [first, min(first + 23, len(expected) - 1)]
            np.testing.assert_array_equal(video.frames(video.times[chosen]), expected[chosen])


@pytest.mark.parametrize("suffix", CODECS)
def test_duration_and_rate_are_as_written(suffix: str, tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / f"a{suffix}", FRAMES, rate=25)) as video:
        assert video.duration == pytest.approx(FRAMES / 25, abs=0.002)
        assert video.rate == pytest.approx(25, rel=0.002)
        np.testing.assert_allclose(video.times, np.arange(FRAMES) / 25, atol=0.0006)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".webm"])
def test_a_variable_frame_rate_is_sampled_by_time(suffix: str, tmp_path: Path) -> None:
    stamps = [*range(0, 400, 40), *range(1000, 1100, 10), *range(2000, 4000, 200)]
    path = write_video(tmp_path / f"a{suffix}", len(stamps), stamps=stamps)
    with open_video(path) as video:
        np.testing.assert_allclose(video.times, np.array(stamps) / 1000, atol=0.0006)
        asked = np.arange(0, 3.9, 0.13)
        expected = [max(index for index, stamp in enumerate(stamps) if stamp <= 1000 * time) for time in asked]
        assert numbers(video, asked) == expected


@pytest.mark.parametrize("suffix", CODECS)
def test_times_of_frames_give_these_frames(suffix: str, tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / f"a{suffix}", FRAMES)) as video:
        assert numbers(video, [index / 30 for index in range(FRAMES)]) == list(range(FRAMES))


def test_order_and_repeats_are_kept_and_each_frame_is_decoded_once(tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / "a.mp4", FRAMES)) as video:
        asked = [5, 3, 5, 9, 3, 3]
        assert numbers(video, video.times[asked]) == asked
        assert video.decoded == 10  # 0..9, from the key frame


def test_the_first_and_last_frames_extend_beyond_the_video(tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / "a.mp4", FRAMES)) as video:
        assert numbers(video, [-1.0, 99.0]) == [0, FRAMES - 1]


@pytest.mark.parametrize(("suffix", "settings"), [(".mp4", {}), (".avi", {}), (".mkv", {}), (".webm", {})])
def test_unneeded_frames_are_skipped_by_key_frame(suffix: str, settings: dict[str, int], tmp_path: Path) -> None:
    path = write_video(tmp_path / f"a{suffix}", 120, key_every=12, **settings)
    with open_video(path) as video:
        assert numbers(video, video.times[[2, 50, 51, 97]]) == [2, 50, 51, 97]
        assert video.decoded == 3 + 4 + 2  # 0..2, 48..51, 96..97


def test_short_gaps_are_decoded(tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / "a.mp4", FRAMES, key_every=3)) as video:
        assert numbers(video, video.times[[0, 3, 6]]) == [0, 3, 6]
        assert video.decoded == 7


@pytest.mark.parametrize(("degrees", "turns"), [(90, -1), (180, 2), (270, 1)])
def test_a_rotated_video_is_upright(degrees: int, turns: int, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", FRAMES)
    before = plain(path)
    with open_video(turn(path, degrees)) as video:
        assert video.size == (SIZE if degrees == 180 else SIZE[::-1])
        np.testing.assert_array_equal(video.frames(video.times[[3, 30]]), np.rot90(before[[3, 30]], turns, (1, 2)))
        small = video.frames(video.times[[3]], short_side=24)
        assert small.shape[1:3] == ((24, 32) if degrees == 180 else (32, 24))


@pytest.mark.parametrize("side", [24, 96])
def test_frames_are_resized_during_conversion(side: int, tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / "a.mp4", FRAMES)) as video:
        resized = video.frames(video.times, short_side=side)
        assert resized.shape == (FRAMES, side, round(side * SIZE[1] / SIZE[0]), 3)
        assert [shown_number(frame) for frame in resized] == list(range(FRAMES))


def test_a_video_may_have_one_frame_and_any_name(tmp_path: Path) -> None:
    path = write_video(tmp_path / "Größe 视频" / "прыжок é.mp4", 1)
    with open_video(path) as video:
        assert (len(video), video.duration) == (1, pytest.approx(1 / 30, abs=1e-4))
        assert numbers(video, [0.0, 0.5, 7.0]) == [0, 0, 0]


def test_frames_without_time_stamps_are_counted(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.h264", FRAMES, codec="libx264")
    with open_video(path) as video:
        assert len(video) == FRAMES
        assert numbers(video, video.times[[30, 4]]) == [30, 4]
        assert numbers(video, video.times[[39]]) == [39]


@pytest.mark.parametrize(
    ("suffix", "muxer"), [(".mp4", {"movflags": "faststart"}), (".avi", {}), (".mkv", {}), (".webm", {})]
)
def test_the_rest_of_a_truncated_file_is_used_and_noted(suffix: str, muxer: dict[str, str], tmp_path: Path) -> None:
    path = write_video(tmp_path / f"a{suffix}", 100, container=muxer)
    truncate(path, 0.6)
    with open_video(path) as video:
        assert 30 < len(video) < 80
        assert video.duration == pytest.approx(len(video) / 30, abs=0.01)
        assert len(video.notes) == 1
        assert f"{video.duration:.1f} of 3.3 seconds" in video.notes[0]
        assert numbers(video, video.times) == list(range(len(video)))
        assert numbers(video, [99.0]) == [len(video) - 1]
        assert video.count_decodable() == len(video)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_sound_is_ignored_and_may_be_longer_than_the_video(suffix: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / f"a{suffix}", FRAMES, sound=3.0)
    with open_video(path) as video:
        assert (len(video), video.notes) == (FRAMES, [])
        assert video.duration == pytest.approx(FRAMES / 30, abs=0.002)
        assert numbers(video, video.times[[30, 2]]) == [30, 2]


def test_a_title_may_have_any_encoding(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", FRAMES, title="XXXXX")
    content = path.read_bytes()
    assert content.count(b"XXXXX") == 1
    path.write_bytes(content.replace(b"XXXXX", "Größe".encode("latin-1")))
    with open_video(path) as video:
        assert numbers(video, video.times[[7]]) == [7]


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])  # only mpeg4 still marks it as a key frame
def test_undecodable_frames_are_replaced_and_noted(codec: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 60, codec=codec, key_every=12)
    with av.open(str(path)) as file:
        key = [bytes(packet) for packet in file.demux(video=0) if packet.is_keyframe][2]
    content = path.read_bytes()
    assert content.count(key) == 1
    path.write_bytes(content.replace(key, b"\xff" * len(key)))
    with open_video(path) as video:
        assert numbers(video, video.times[[10, 24, 50]]) == [10, 23, 50]
        assert len(video.notes) == 1
        assert video.notes[0].startswith("1 of 3 ")
        assert video.count_decodable() < 60


def broken(kind: str, folder: Path) -> Path:
    path = folder / "a.mp4"
    if kind == "zero":
        path.touch()
    elif kind == "text":
        path.write_text("not a video " * 400)
    elif kind == "sound":
        write_sound(path)
    elif kind == "cover":
        write_sound(path, cover=True)
    elif kind == "no index":
        truncate(write_video(path))
    elif kind == "no frames":
        write_video(path.with_suffix(".avi"), 0)
        return path.with_suffix(".avi")
    elif kind == "noise":
        write_video(path, codec="mpeg4")
        content = bytearray(path.read_bytes())
        start = content.index(b"mdat") + 4
        content[start : content.index(b"moov") - 4] = bytes(content.index(b"moov") - 4 - start)
        path.write_bytes(content)
    elif kind == "empty folder":
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        ("zero", "0 bytes"),
        ("text", "not a video"),
        ("no index", "cut off"),
        ("sound", "sound"),
        ("cover", "sound"),
        ("no frames", "without frames"),
        ("noise", "none of the needed"),
        ("empty folder", ".jpg, .jpeg, .png"),
        ("missing", "no such file or folder"),
    ],
)
def test_unusable_videos_are_refused_with_the_reason(kind: str, fact: str, tmp_path: Path) -> None:
    path = broken(kind, tmp_path)
    with pytest.raises(VideoError) as caught, open_video(path) as video:
        video.frames([0.0, 0.5])
    assert str(caught.value).startswith(f"{path}: ")
    assert fact in str(caught.value)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (type(sent), str(sent)) == (VideoError, str(caught.value))


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4", 1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ModuleNotFoundError, match=r'av .*"dnlnet\[video\]"'):
        open_video(path)
    with open_video(write_frames(tmp_path / "a", 2)) as video:  # a folder needs no codec
        assert len(video) == 2


def test_videos_are_recognised_by_suffix_and_folders_by_their_images(tmp_path: Path) -> None:
    assert is_video(tmp_path / "a.MP4")
    assert not is_video(tmp_path / "a.txt")
    assert not is_video(tmp_path / ".a.mp4")
    assert is_video(write_frames(tmp_path / "frames", 1))
    assert not is_video(tmp_path)


def test_frames_of_real_clips_equal_those_of_sequential_decoding(real_data: Path) -> None:
    paths = sorted((real_data / "ucf101_6cls" / "videos").glob("*/*.avi"))
    assert len(paths) == 90
    for path in [*paths[2:14:11], *paths[::12]]:  # two with packed B-frames, some with many key frames
        expected = plain(path)
        with open_video(path) as video:
            assert (len(video), video.size, video.notes) == (len(expected), (240, 320), [])
            chosen = np.random.default_rng(0).choice(len(expected), 12)
            np.testing.assert_array_equal(video.frames(video.times[chosen]), expected[chosen])
