import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.samples import Draw
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.opening import open_video
from dnlnet.video.data.samples import ClipSample, TestViews, TrainingClips, crop_places
from dnlnet.video.data.ucf101 import ucf101
from dnlnet.video.data.video import Video
from dnlnet.video.data.video_folder import video_folder
from dnlnet.video.data.videos import LabelledVideos, VideoEntry, find_existing, named_classes
from dnlnet.video.schema import VideoData, Views
from dnlnet.video.task import VideoTask
from observer import Recorder
from trees import truncate, write_image
from video_trees import SIZE, moving_shapes, numbered_frame, shown_number, write_frames, write_sound, write_video

CLIP = Clip(count=4, stride=3, rate=30)


@pytest.fixture
def videos(tmp_path: Path) -> LabelledVideos:
    """Write a file of 60 frames of class 1, and a folder of 20 frames of class 0."""
    paths = write_video(tmp_path / "a.mp4", 60), write_frames(tmp_path / "b", 20)
    entries = [VideoEntry(path, label) for path, label in zip(paths, (1, 0), strict=True)]
    return LabelledVideos("mine", named_classes(["still", "run"]), entries)


def clips(videos: LabelledVideos, seed: int = 0, **settings: Any) -> TrainingClips:
    return TrainingClips(videos, VideoData(**{"frames": 4, "stride": 3, **settings}), seed)


def plain(videos: LabelledVideos) -> TrainingClips:
    """Return clips that are not resized, cropped or flipped, so their numbers are readable."""
    return clips(videos, short_sides=(48, 48), crop=48, flip=0)


def equal(a: ClipSample, b: ClipSample) -> bool:
    return torch.equal(a.clip, b.clip) and a[1:] == b[1:]


def numbers(clip: torch.Tensor) -> list[int]:
    """Return the numbers on the frames of a clip (3, T, H, W)."""
    padded = np.zeros((clip.shape[1], *SIZE, 3), dtype=np.uint8)
    padded[:, :, : clip.shape[3]] = clip.permute(1, 2, 3, 0).numpy()
    return [shown_number(frame) & 0b11111 for frame in padded]  # a crop of 48 x 48 may cut off the last bits


def test_a_sample_is_a_clip_of_bytes_with_its_class(videos: LabelledVideos) -> None:
    sample = TrainingClips(videos, VideoData())[Draw(0, epoch=0)]
    assert (sample.clip.shape, sample.clip.dtype) == ((3, 8, 224, 224), torch.uint8)
    assert (sample.label, sample.name, sample.skipped) == (1, str(videos.videos[0].path), ())
    assert sample.clip.is_contiguous()


def test_the_frames_of_a_clip_have_the_requested_stride(tmp_path: Path) -> None:
    frames = [numbered_frame(number)[:, :48] for number in range(60)]  # square, so the crop is the whole frame
    path = write_video(tmp_path / "a.mp4", frames)
    data = plain(find_existing("mine", named_classes("a"), [VideoEntry(path, 0)]))
    starts = set()
    for epoch in range(12):
        found = numbers(data[Draw(0, epoch)].clip)
        assert [(number - found[0]) % 32 for number in found] == [0, 3, 6, 9]
        starts.add(found[0])
    assert len(starts) > 6


def test_a_clip_is_a_part_of_the_resized_frames(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "0.png", size=SIZE)
    entries = [VideoEntry(tmp_path / "a", 0)]
    videos = find_existing("mine", named_classes("a"), entries)
    data = clips(videos, frames=1, short_sides=(48, 48), crop=32, flip=0)
    with open_video(tmp_path / "a") as video:
        whole = torch.from_numpy(video.frames([0.0])[0]).permute(2, 0, 1)
    windows = whole.unfold(1, 32, 1).unfold(2, 32, 1).permute(1, 2, 0, 3, 4)  # rows, columns, 3, 32, 32
    places = []
    for epoch in range(20):
        same = (windows == data[Draw(0, epoch)].clip[:, 0]).flatten(2).all(dim=2)
        assert int(same.sum()) == 1
        places.append(same.nonzero()[0])
    rows, columns = torch.stack(places).T
    assert 10 < rows.max() - rows.min() <= 16
    assert 20 < columns.max() - columns.min() <= 32


def test_a_flip_exchanges_left_and_right(videos: LabelledVideos) -> None:
    for draw in (Draw(0, 0), Draw(1, 3)):
        straight, flipped = (clips(videos, short_sides=(48, 56), crop=40, flip=flip)[draw].clip for flip in (0, 1))
        assert torch.equal(flipped, straight.flip(3))


def test_the_same_draw_gives_the_same_sample_and_another_does_not(videos: LabelledVideos) -> None:
    data, other = (clips(videos, seed, short_sides=(48, 64), crop=40) for seed in (3, 4))
    assert equal(data[Draw(0, 0)], data[Draw(0, 0)])
    assert not equal(data[Draw(0, 0)], data[Draw(0, 1)])
    assert not equal(data[Draw(0, 0)], other[Draw(0, 0)])


def test_samples_do_not_depend_on_the_number_of_workers(videos: LabelledVideos) -> None:
    data = clips(videos, short_sides=(48, 64), crop=40)
    draws = [[Draw(0, epoch), Draw(1, epoch)] for epoch in range(2)]
    alone, shared = (
        list(DataLoader(data, batch_sampler=draws, num_workers=workers, collate_fn=data.collate))
        for workers in (0, 2)
    )
    for one, two in zip(alone, shared, strict=True):
        assert (one.clip.shape, one.label.tolist()) == ((2, 3, 4, 40, 40), [1, 0])
        assert torch.equal(one.clip, two.clip)
        assert (one.label.tolist(), one.name, one.skipped) == (two.label.tolist(), two.name, two.skipped)


def test_an_unreadable_video_is_replaced_by_the_next_and_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    good, sound = write_video(tmp_path / "a.mp4"), write_sound(tmp_path / "sound.mp4")
    entries = [VideoEntry(path, label) for label, path in enumerate([good, tmp_path / "empty.mp4", sound])]
    data = plain(find_existing("mine", named_classes("abc"), entries))
    sample = data[Draw(1, 0)]
    assert (sample.label, sample.name) == (0, str(good))
    assert [reason.split(": ")[0] for reason in sample.skipped] == [f"{tmp_path}/empty.mp4", str(sound)]
    assert data.collate([data[Draw(0, 0)], sample, data[Draw(2, 0)]]).skipped == [*sample.skipped, sample.skipped[1]]
    assert equal(sample, data[Draw(1, 0)])


def test_a_truncated_video_is_used_and_reported(tmp_path: Path) -> None:
    cut = write_video(tmp_path / "cut.webm", 90)
    truncate(cut, 1 / 3)
    entries = [VideoEntry(cut, 0), VideoEntry(write_video(tmp_path / "whole.webm"), 1)]
    videos = LabelledVideos("mine", named_classes("ab"), entries)
    fact = rf"^{cut}: .*0\.\d of 3\.0 seconds"
    views, data = TestViews(videos, CLIP, Views(clips=1, crops=1, short_side=48)), plain(videos)
    view_batch = views.collate([views[0], views[1]])
    clip_batch = data.collate([data[Draw(0, 0)], data[Draw(1, 0)]])
    for notes in ([note for one in view_batch for note in one.notes], clip_batch.notes):
        assert [bool(re.match(fact, str(note))) for note in notes] == [True], notes

    recorder = Recorder()
    task = VideoTask(videos.classes, Pixels(), 8, recorder)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool3d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    metric = task.metric()
    for _ in range(2):
        task.losses(network, clip_batch)
    task.score(network, view_batch, metric)
    assert len(recorder.said) == 1
    assert recorder.said[0].endswith(f": {clip_batch.notes[0]}")
    assert (metric.count, metric.notes) == (2, [str(view_batch[0].notes[0])])


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1)])
def test_a_video_one_pixel_wide_is_refused(size: tuple[int, int], tmp_path: Path) -> None:
    for number in range(3):
        write_image(tmp_path / "a" / f"{number}.png", size=size)
    videos = LabelledVideos("mine", named_classes("a"), [VideoEntry(tmp_path / "a", 0)])
    sample = TestViews(videos, CLIP, Views(clips=1, crops=1))[0]
    assert sample.problem is not None
    assert sample.problem.startswith(f"{tmp_path / 'a'}: is {size[0]} x {size[1]} (height x width)")


def test_many_unreadable_videos_stop_the_run(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.mp4").touch()
    entries = [VideoEntry(tmp_path / f"{number}.mp4", 0) for number in range(40)]
    with pytest.raises(ValueError, match=r"32 .*/5\.mp4: "):
        plain(find_existing("mine", named_classes("a"), entries))[Draw(5, 0)]


def shown(views: torch.Tensor) -> list[int]:
    return [number for clip in views for number in numbers(clip)]


def test_views_are_all_crops_of_all_clips(videos: LabelledVideos) -> None:
    sample = TestViews(videos, CLIP, Views(clips=5, short_side=48))[0]
    assert (sample.views.shape, sample.views.dtype) == ((15, 3, 4, 48, 48), torch.uint8)
    assert (sample.label, sample.name, sample.problem) == (1, str(videos.videos[0].path), None)
    with open_video(videos.videos[0].path) as video:
        whole = torch.from_numpy(video.frames(video.times)).permute(3, 0, 1, 2)
    for clip, first in enumerate([0, 12, 25, 37, 50]):  # at 0, 12.5, 25, 37.5 and 50 frames
        for crop, left in enumerate([0, 8, 16]):
            expected = whole[:, [first + step for step in (0, 3, 6, 9)], :, left : left + 48]
            assert torch.equal(sample.views[3 * clip + crop], expected)


def test_each_frame_of_all_views_is_decoded_once(videos: LabelledVideos, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Video] = []

    def noting(path: Path) -> Video:
        opened.append(open_video(path))
        return opened[-1]

    monkeypatch.setattr("dnlnet.video.data.samples.open_video", noting)
    TestViews(videos, Clip(8, 8), Views(short_side=48))[0]
    TestViews(videos, Clip(8, 8), Views(short_side=48))[1]
    assert opened[0].decoded <= 60
    assert opened[1].decoded == 5  # frames 0, 4, 8, 12 and 16 of 20, repeatedly


def test_clips_of_a_short_looped_video_are_equal(videos: LabelledVideos) -> None:
    views = TestViews(videos, Clip(4, 8, 30), Views(clips=2, crops=1, short_side=48))[1].views
    assert torch.equal(views[0], views[1])
    assert numbers(views[0][..., :48]) == [number & 0b11111 for number in crop_numbers([0, 8, 16, 4])]


def crop_numbers(frames: list[int]) -> list[int]:
    """Return the numbers visible in the middle crop of 48 columns, which lacks the lowest bit."""
    return [frame >> 1 for frame in frames]


def test_an_unreadable_video_has_no_views(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    videos = find_existing("mine", named_classes("a"), [VideoEntry(tmp_path / "a.mp4", 0)])
    sample = TestViews(videos, CLIP, Views(short_side=48))[0]
    assert sample.views.shape == (0, 3, 4, 48, 48)
    assert sample.problem is not None
    assert sample.problem.startswith(f"{tmp_path}/a.mp4: ")
    assert (sample.label, sample.name) == (0, str(tmp_path / "a.mp4"))


def test_crops_are_spread_over_the_longer_side() -> None:
    assert crop_places((256, 341), 256, 3) == [(0, 0), (0, 42), (0, 85)]
    assert crop_places((341, 256), 224, 3) == [(0, 16), (58, 16), (117, 16)]
    assert crop_places((256, 256), 224, 1) == [(16, 16)]


def test_only_the_motion_of_moving_shapes_shows_their_class(tmp_path: Path) -> None:
    videos = video_folder(moving_shapes(tmp_path, videos=3, splits=["train"]), "train").require_usable()
    assert (len(videos), videos.classes.names) == (12, ("down", "left", "right", "up"))
    data = TestViews(videos, Clip(2, 1), Views(clips=4, crops=1, short_side=32))
    steps = {0: (2, 0), 1: (0, -2), 2: (0, 2), 3: (-2, 0)}
    for index in range(len(data)):
        sample = data[index]
        first, second = sample.views[0].float().mean(dim=0)
        moved = {label: (first.roll(step, (0, 1)) - second).abs().mean().item() for label, step in steps.items()}
        assert min(moved, key=moved.__getitem__) == sample.label


def test_invalid_arguments_are_refused(videos: LabelledVideos) -> None:
    with pytest.raises(IndexError, match=r"video 2 is outside 0\.\.1"):
        clips(videos)[Draw(2, 0)]
    with pytest.raises(ValueError, match=r"seed .*-1"):
        clips(videos, seed=-1)
    with pytest.raises(ValueError, match=r"flip\n.*input_value=2"):
        VideoData(flip=2)
    with pytest.raises(ValueError, match=r"crop of 224 .*200"):
        VideoData(short_sides=(200, 320))
    with pytest.raises(ValueError, match=r"clips\n.*input_value=0"):
        Views(clips=0)
    with pytest.raises(ValueError, match="none of the 1 listed videos"):
        clips(find_existing("mine", named_classes("a"), [VideoEntry(Path("/nowhere.mp4"), 0)]))


def test_real_videos_have_the_papers_views(real_data: Path) -> None:
    videos = ucf101(real_data / "ucf101_6cls", "test01")
    sample = TestViews(videos, Clip(), Views())[7]
    assert (sample.views.shape, sample.label) == ((30, 3, 8, 256, 256), 1)
    assert sample.views[:, :, 0, ::4, ::4].float().std(dim=(1, 2, 3)).min() > 5
    assert TrainingClips(videos, VideoData())[Draw(7, 0)].clip.shape == (3, 8, 224, 224)
