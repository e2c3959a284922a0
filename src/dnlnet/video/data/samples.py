"""Training clips and test views of videos. A batch of views is a list of samples.

An unreadable video does not stop a run. In training, the next readable one replaces it; in testing, it has no views.
The reason is part of the sample, so the main process can report each video once, whichever worker read it.
"""

# B clips of a batch, V views of a video, T frames of a clip; H, W size of a frame

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.images import HeightWidth
from dnlnet.data.problems import Problem
from dnlnet.data.samples import require_seed
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.opening import open_video
from dnlnet.video.data.video import Frames, Video, VideoError
from dnlnet.video.data.videos import LabelledVideos
from dnlnet.video.schema import VideoData, Views

AnySample = TypeVar("AnySample", covariant=True)

MOST_SKIPPED = 32  # consecutive unreadable videos; more mean a missing disk, not damaged files


class ClipSample(NamedTuple):
    """A clip of a video."""

    clip: Tensor  # (3, T, H, W) in 0..255, or features (C, T, h, w) in float16
    label: int
    name: str  # path of the video
    skipped: tuple[str, ...]  # reasons why the videos that it replaces are unreadable
    notes: tuple[Problem, ...] = ()  # defects of the video, such as truncation


class ClipBatch(NamedTuple):
    """The samples of a training batch."""

    clip: Tensor  # (B, 3, T, H, W), or features (B, C, T, h, w)
    label: Tensor  # (B,)
    name: list[str]
    skipped: list[str]
    notes: list[Problem]


class ViewSample(NamedTuple):
    """All views of a video, ordered by clip and crop."""

    views: Tensor  # (V, 3, T, H, W) in 0..255, or features (V, C, T, h, w); V = 0 if the video is unreadable
    label: int
    name: str  # path of the video
    problem: str | None  # reason why the video is unreadable
    notes: tuple[Problem, ...] = ()  # defects of the video, such as truncation


class VideoSamples(Dataset[AnySample]):
    """Samples of labelled videos."""

    def __init__(self, videos: LabelledVideos) -> None:
        self.videos = videos.require_usable()

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def classes(self) -> Classes:
        """Classes of the videos."""
        return self.videos.classes

    def files(self) -> Iterator[Listed]:
        """Yield the files that the samples are read from, in order."""
        return self.videos.files()


class TrainingClips(VideoSamples[ClipSample]):
    """A random clip of each video: randomly placed, resized, cropped and flipped.

    Each sample depends only on the seed, the epoch and the index, so a run can be resumed with any number of workers.

    Args:
        videos: Videos. Their lists must have no faults.
        data: Sampling and augmentation of clips.
        seed: Random seed of the run.
    """

    def __init__(self, videos: LabelledVideos, data: VideoData, seed: int = 0) -> None:
        self.data, self.clip, self.seed = data, data.clip(), require_seed(seed)
        super().__init__(videos)

    def __getitem__(self, draw: tuple[int, int]) -> ClipSample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"video {index} is outside 0..{len(self) - 1}")
        skipped: list[str] = []
        for step in range(min(len(self), MOST_SKIPPED)):
            entry = self.videos.videos[(index + step) % len(self)]
            try:
                with open_video(entry.path) as video:
                    frames = self._frames(video, np.random.default_rng((self.seed, epoch, index)))
            except VideoError as error:
                skipped.append(str(error))
            else:
                clip = _to_tensor(frames)
                return ClipSample(clip, entry.label, str(entry.path), tuple(skipped), video.problems)
        raise ValueError(f"{len(skipped)} consecutive videos cannot be read; the first: {skipped[0]}")

    def _frames(self, video: Video, rng: np.random.Generator) -> Frames:
        (low, high), crop = self.data.short_sides, self.data.crop
        short_side = int(rng.integers(low, high + 1))
        flipped = bool(rng.random() < self.data.flip)
        y, x = rng.random(2)
        times = self.clip.times(self.clip.random_start(rng, video.duration), video.duration)
        frames = video.frames(times, short_side)
        top, left = (
            int(place * (length - crop + 1)) for place, length in zip((y, x), frames.shape[1:3], strict=True)
        )
        cropped = frames[:, top : top + crop, left : left + crop]
        return cropped[:, :, ::-1] if flipped else cropped

    @staticmethod
    def collate(samples: Sequence[ClipSample]) -> ClipBatch:
        """Combine samples into a batch, as the `collate_fn` of a loader.

        >>> sample = ClipSample(torch.zeros(3, 8, 2, 2), 5, "a.mp4", ("b.mp4: is empty",))
        >>> TrainingClips.collate([sample, sample]).label
        tensor([5, 5])
        """
        return ClipBatch(
            torch.stack([one.clip for one in samples]),
            torch.tensor([one.label for one in samples]),
            [one.name for one in samples],
            [reason for one in samples for reason in one.skipped],
            [note for one in samples for note in one.notes],
        )


class TestViews(VideoSamples[ViewSample]):
    """All views of each video: clips spread over its length, square crops spread over its longer side.

    Args:
        videos: Videos. Their lists must have no faults.
        clip: Sampling of frames.
        evaluation: Number and size of the views.
    """

    __test__ = False  # tells pytest that this is not a class of tests
    collate = list

    def __init__(self, videos: LabelledVideos, clip: Clip, evaluation: Views) -> None:
        super().__init__(videos)
        self.clip, self.evaluation = clip, evaluation

    def __getitem__(self, index: int) -> ViewSample:
        entry = self.videos.videos[index]
        try:
            with open_video(entry.path) as video:
                views = views_of(video, self.clip, self.evaluation)
        except VideoError as error:
            side = self.evaluation.short_side
            none = torch.empty(0, 3, self.clip.count, side, side, dtype=torch.uint8)
            return ViewSample(none, entry.label, str(entry.path), str(error))
        return ViewSample(views, entry.label, str(entry.path), None, video.problems)


def views_of(video: Video, clip: Clip, evaluation: Views) -> Tensor:
    """Return all views of a video, (V, 3, T, H, W) (see `TestViews`). Frames shared by clips are decoded once."""
    starts, side = clip.spread_starts(evaluation.clips, video.duration), evaluation.short_side
    frames = video.frames(np.concatenate([clip.times(float(start), video.duration) for start in starts]), side)
    views = [
        _to_tensor(part[:, top : top + side, left : left + side])
        for part in np.split(frames, evaluation.clips)
        for top, left in crop_places((frames.shape[1], frames.shape[2]), side, evaluation.crops)
    ]
    return torch.stack(views)


def crop_places(size: HeightWidth, crop: int, count: int) -> list[tuple[int, int]]:
    """Return top and left of squares, spread over the longer side of a frame and centred on the shorter one.

    >>> crop_places((256, 340), 256, 3), crop_places((8, 4), 4, 1)
    ([(0, 0), (0, 42), (0, 84)], [(2, 0)])
    """
    height, width = (length - crop for length in size)
    shares = [place / (count - 1) for place in range(count)] if count > 1 else [0.5]
    if height > width:
        return [(round(height * share), width // 2) for share in shares]
    return [(height // 2, round(width * share)) for share in shares]


def _to_tensor(frames: NDArray[np.uint8]) -> Tensor:
    """Copy (T, H, W, 3) to a writable tensor (3, T, H, W)."""
    return torch.from_numpy(np.array(frames.transpose(3, 0, 1, 2), order="C"))
