"""Samples of videos: random clips to train on, the same for the same seed; evenly spread views to evaluate on.

A video that cannot be read does not stop a run. When training, the next one that can be read takes its place; when
evaluating, it has no views. The reason travels with the sample, so that whoever gets the batches can count and report
each once, whichever process the files were read in.
"""

# B clips of a batch, V views of a video, T frames of a clip; H, W size of a picture

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.labelled import Problem
from dnlnet.data.samples import require_seed
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.opening import open_video
from dnlnet.video.data.video import Frames, Size, Video, VideoError
from dnlnet.video.data.videos import LabelledVideos

_MOST_SKIPPED = 32  # videos one after the other; as many as that are not damaged files but a missing disk


class ClipSample(NamedTuple):
    """A clip, its class, the file it comes from, and those that could not be read in its place."""

    clip: Tensor  # (3, T, H, W) of 0..255, to be normalised where the model is
    label: int
    name: str
    skipped: tuple[str, ...]  # one sentence for each, with its path
    notes: tuple[Problem, ...] = ()  # what is wrong with the file although it is used, such as that it is cut off


class ClipBatch(NamedTuple):
    """Several `ClipSample`s."""

    clip: Tensor  # (B, 3, T, H, W)
    label: Tensor  # (B,)
    name: list[str]
    skipped: list[str]
    notes: list[Problem]


class ViewSample(NamedTuple):
    """All views of a video, clip by clip and each from crop to crop; none if it cannot be read, and the reason."""

    views: Tensor  # (V, 3, T, H, W) of 0..255
    label: int
    name: str
    problem: str | None
    notes: tuple[Problem, ...] = ()  # what is wrong with the file although it is used, such as that it is cut off


class ViewBatch(NamedTuple):
    """Several `ViewSample`s."""

    views: list[Tensor]
    label: Tensor  # (B,)
    name: list[str]
    problem: list[str | None]
    notes: list[Problem]


class TrainingClips(Dataset[ClipSample]):
    """A random clip of each video: anywhere in it, resized at random, a random crop, and flipped at random.

    Each sample depends on the seed, the epoch and the index alone: not on the number of workers, nor on what was
    drawn before, so that a run can go on where it stopped.

    Args:
        videos: where they come from; their lists without faults, or this fails at once.
        clip: which frames make a clip.
        short_sides: the shorter side is brought to a length drawn evenly from this range, its ends included.
        crop: side of the square that is cut out.
        flip: probability of exchanging left and right; 0 if the classes differ by that.
        seed: of the whole run.
    """

    def __init__(
        self,
        videos: LabelledVideos,
        clip: Clip | None = None,
        short_sides: tuple[int, int] = (256, 320),
        crop: int = 224,
        flip: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.seed = require_seed(seed)
        if not 0 <= flip <= 1:
            raise ValueError(f"flip is a probability, got {flip}")
        low, high = short_sides
        if not 1 <= crop <= low <= high:
            sides = f"short_sides from low to high of at least that, got {low}..{high}"
            raise ValueError(f"a crop of {crop} needs {sides}")
        self.videos, self.clip = videos.require_usable(), clip or Clip()
        self.short_sides, self.crop, self.flip = short_sides, crop, flip

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def classes(self) -> Classes:
        """What the labels mean."""
        return self.videos.classes

    def files(self) -> Iterator[Listed]:
        """The files that the samples are read from, in order."""
        return self.videos.files()

    def __getitem__(self, draw: tuple[int, int]) -> ClipSample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"video {index} is outside 0..{len(self) - 1}")
        skipped: list[str] = []
        for step in range(min(len(self), _MOST_SKIPPED)):
            entry = self.videos.videos[(index + step) % len(self)]
            try:
                with open_video(entry.path) as video:
                    frames = self._frames(video, np.random.default_rng((self.seed, epoch, index)))
            except VideoError as error:
                skipped.append(str(error))
            else:
                clip = _to_tensor(frames)
                return ClipSample(clip, entry.label, str(entry.path), tuple(skipped), video.problems)
        raise ValueError(f"{len(skipped)} videos one after the other cannot be read; the first: {skipped[0]}")

    def _frames(self, video: Video, rng: np.random.Generator) -> Frames:
        short_side = int(rng.integers(self.short_sides[0], self.short_sides[1] + 1))
        flipped = bool(rng.random() < self.flip)
        down, across = rng.random(2)
        times = self.clip.times(self.clip.random_start(rng, video.duration), video.duration)
        frames = video.frames(times, short_side)
        top, left = (
            int(place * (length - self.crop + 1))
            for place, length in zip((down, across), frames.shape[1:3], strict=True)
        )
        cut = frames[:, top : top + self.crop, left : left + self.crop]
        return cut[:, :, ::-1] if flipped else cut

    @staticmethod
    def collate(samples: Sequence[ClipSample]) -> ClipBatch:
        """A batch of samples, as the `collate_fn` of a loader.

        >>> sample = ClipSample(torch.zeros(3, 8, 2, 2), 5, "a.mp4", ("b.mp4: has sound but no pictures",))
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


class TestViews(Dataset[ViewSample]):
    """All views of each video, by index: clips spread over its length, square crops over its longer side.

    Args:
        videos: where they come from; their lists without faults, or this fails at once.
        clip: which frames make a clip.
        clips: how many of a video.
        crops: how many of each clip.
        short_side: length that the shorter side is brought to.
        crop: side of the squares; None for that of `short_side`.
    """

    __test__ = False  # its name says what it is for, not that pytest should collect it

    def __init__(
        self,
        videos: LabelledVideos,
        clip: Clip | None = None,
        clips: int = 10,
        crops: int = 3,
        short_side: int = 256,
        crop: int | None = None,
    ) -> None:
        if clips < 1 or crops < 1:
            raise ValueError(f"at least 1 clip and 1 crop are needed, got {clips} and {crops}")
        crop = short_side if crop is None else crop
        if not 1 <= crop <= short_side:
            raise ValueError(f"the crop must be within 1 and short_side, {short_side}, got {crop}")
        self.videos, self.clip = videos.require_usable(), clip or Clip()
        self.clips, self.crops, self.short_side, self.crop = clips, crops, short_side, crop

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def classes(self) -> Classes:
        """What the labels mean."""
        return self.videos.classes

    def files(self) -> Iterator[Listed]:
        """The files that the samples are read from, in order."""
        return self.videos.files()

    def __getitem__(self, index: int) -> ViewSample:
        entry = self.videos.videos[index]
        try:
            with open_video(entry.path) as video:
                views = views_of(video, self.clip, self.clips, self.crops, self.short_side, self.crop)
        except VideoError as error:
            none = torch.empty(0, 3, self.clip.count, self.crop, self.crop, dtype=torch.uint8)
            return ViewSample(none, entry.label, str(entry.path), str(error))
        return ViewSample(views, entry.label, str(entry.path), None, video.problems)

    @staticmethod
    def collate(samples: Sequence[ViewSample]) -> ViewBatch:
        """A batch of samples, as the `collate_fn` of a loader.

        >>> TestViews.collate([ViewSample(torch.zeros(30, 3, 8, 2, 2), 5, "a.mp4", None)]).label
        tensor([5])
        """
        return ViewBatch(
            [one.views for one in samples],
            torch.tensor([one.label for one in samples]),
            [one.name for one in samples],
            [one.problem for one in samples],
            [note for one in samples for note in one.notes],
        )


def views_of(video: Video, clip: Clip, clips: int, crops: int, short_side: int, crop: int | None = None) -> Tensor:
    """All views of one video, (V, 3, T, H, W): see `TestViews`. Frames that several clips share are decoded once."""
    crop = short_side if crop is None else crop
    times = [clip.times(float(start), video.duration) for start in clip.spread_starts(clips, video.duration)]
    frames = video.frames(np.concatenate(times), short_side)
    views = [
        _to_tensor(part[:, top : top + crop, left : left + crop])
        for part in np.split(frames, clips)
        for top, left in crop_places((frames.shape[1], frames.shape[2]), crop, crops)
    ]
    return torch.stack(views)


def crop_places(size: Size, crop: int, count: int) -> list[tuple[int, int]]:
    """Top and left of squares spread over the longer side of a picture and in the middle of the shorter one.

    >>> crop_places((256, 340), 256, 3), crop_places((8, 4), 4, 1)
    ([(0, 0), (0, 42), (0, 84)], [(2, 0)])
    """
    height, width = (length - crop for length in size)
    shares = [place / (count - 1) for place in range(count)] if count > 1 else [0.5]
    if height > width:
        return [(round(height * share), width // 2) for share in shares]
    return [(height // 2, round(width * share)) for share in shares]


def _to_tensor(frames: NDArray[np.uint8]) -> Tensor:
    """(T, H, W, 3) as (3, T, H, W): a copy, which may be written to."""
    return torch.from_numpy(np.array(frames.transpose(3, 0, 1, 2), order="C"))
