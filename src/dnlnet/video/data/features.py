"""Training clips and test views made of a frozen backbone's features of frames.

Clips of a video start at multiples of the distance between their frames, so that they share frames. The features of
all these frames are computed once for each crop of the video, and for its mirror image.
"""

# V views of a video, F frames that clips may use, T frames of a clip, C channels, h, w size of a map

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dnlnet.data.samples import require_seed
from dnlnet.recipes.features import FrozenNetwork, Source
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.opening import open_video
from dnlnet.video.data.samples import MOST_SKIPPED, ClipSample, TrainingClips, VideoSamples, ViewSample, crop_places
from dnlnet.video.data.video import VideoError
from dnlnet.video.data.videos import LabelledVideos
from dnlnet.video.frozen import FrozenClassifier
from dnlnet.video.schema import VideoData, Views

_AT_ONCE = 16  # frames
_UNREADABLE = "cannot be read; dnlnet data check shows why"


class Crop(NamedTuple):
    """One of the square crops spread over the longer side of a video, or its mirror image."""

    number: int
    flipped: bool = False

    @property
    def relative_size(self) -> float:
        """Size of the features, relative to other crops."""
        return 1.0

    def __str__(self) -> str:
        return f"crop{self.number}{'-flipped' if self.flipped else ''}"


class Extractor(FrozenNetwork):
    """Frozen backbone that computes the features of the frames of a video.

    Args:
        network: Network whose backbone is used.
        clip: Sampling of frames.
        evaluation: Size and number of the crops.
        settings: Backbone settings of the recipe, which identify the features.
        precision: Precision of training.
    """

    def __init__(
        self,
        network: FrozenClassifier,
        data: VideoData,
        evaluation: Views,
        settings: Mapping[str, Any],
        precision: str = "float32",
    ) -> None:
        self.clip, self.pixels, self.evaluation = data.clip(), data.pixels(), evaluation
        sampled = {"step": self.clip.step, "short_side": evaluation.short_side, "crops": evaluation.crops}
        colours = {"mean": data.mean, "deviation": data.deviation}
        super().__init__(network.backbone, {**settings, **sampled, **colours}, ("map",), precision)

    def __call__(self, path: Path, crop: Crop) -> list[Tensor]:
        """Return the maps (F, C, h, w) of the frames that clips may use, in float16; F = 0 if it is unreadable."""
        side = self.evaluation.short_side
        try:
            with open_video(path) as video:
                frames = video.frames(self.clip.shared_times(video.duration), side)
        except VideoError:
            return [torch.empty(0, 1, 1, 1, dtype=torch.float16)]
        height, width = frames.shape[1:3]
        top, left = crop_places((height, width), side, self.evaluation.crops)[crop.number]
        seen = frames[:, top : top + side, left : left + side]
        pixels = torch.from_numpy(np.array(seen[:, :, ::-1] if crop.flipped else seen)).permute(0, 3, 1, 2)
        parts = pixels.split(_AT_ONCE)
        return [torch.cat([self.maps(self.pixels.normalised(part))[-1] for part in parts])]


class FeatureClips(VideoSamples[ClipSample]):
    """A random clip of the features of each video, in a random crop.

    Each sample depends only on the seed, the epoch and the index, so a run can be resumed with any number of workers.

    Args:
        videos: Videos. Their lists must have no faults.
        source: Source of the features.
        data: Sampling of clips, and the share of mirrored ones.
        crops: Number of crops of a video.
        seed: Random seed of the run.
    """

    collate = staticmethod(TrainingClips.collate)

    def __init__(
        self, videos: LabelledVideos, source: Source[Crop], data: VideoData, crops: int, seed: int = 0
    ) -> None:
        super().__init__(videos)
        self.source, self.clip, self.flip, self.crops = source, data.clip(), data.flip, crops
        self.seed = require_seed(seed)

    def __getitem__(self, draw: tuple[int, int]) -> ClipSample:
        index, epoch = draw
        if not 0 <= index < len(self):
            raise IndexError(f"video {index} is outside 0..{len(self) - 1}")
        rng = np.random.default_rng((self.seed, epoch, index))
        crop = Crop(int(rng.integers(self.crops)), bool(rng.random() < self.flip))
        skipped: list[str] = []
        for step in range(min(len(self), MOST_SKIPPED)):
            entry = self.videos.videos[(index + step) % len(self)]
            (maps,) = self.source(entry.path, crop)
            if len(maps):
                duration = len(maps) * self.clip.step
                clip = clip_of(maps, self.clip, self.clip.random_start(rng, duration))
                return ClipSample(clip, entry.label, str(entry.path), tuple(skipped))
            skipped.append(f"{entry.path}: {_UNREADABLE}")
        raise ValueError(f"{len(skipped)} consecutive videos cannot be read; the first: {skipped[0]}")


class FeatureViews(VideoSamples[ViewSample]):
    """Features of all views of each video, as in `TestViews`.

    Args:
        videos: Videos. Their lists must have no faults.
        source: Source of the features.
        clip: Sampling of frames.
        evaluation: Number of the views.
    """

    collate = list

    def __init__(self, videos: LabelledVideos, source: Source[Crop], clip: Clip, evaluation: Views) -> None:
        super().__init__(videos)
        self.source, self.clip, self.evaluation = source, clip, evaluation

    def __getitem__(self, index: int) -> ViewSample:
        entry = self.videos.videos[index]
        crops = [self.source(entry.path, Crop(number))[0] for number in range(self.evaluation.crops)]
        if not len(crops[0]):
            return ViewSample(crops[0], entry.label, str(entry.path), f"{entry.path}: {_UNREADABLE}")
        starts = self.clip.spread_starts(self.evaluation.clips, len(crops[0]) * self.clip.step)
        views = [clip_of(maps, self.clip, float(start)) for start in starts for maps in crops]
        return ViewSample(torch.stack(views), entry.label, str(entry.path), None)


def clip_of(maps: Tensor, clip: Clip, start: float) -> Tensor:
    """Return the features (C, T, h, w) of a clip, from those of the video (F, C, h, w)."""
    times = clip.times(start, len(maps) * clip.step)
    return maps[np.rint(times / clip.step).astype(int)].transpose(0, 1)


def crops_of(videos: LabelledVideos, crops: int, flips: Sequence[bool] = (False,)) -> list[tuple[Path, Crop]]:
    """Return every crop of every video."""
    return [
        (entry.path, Crop(number, flipped)) for entry in videos.videos for number in range(crops) for flipped in flips
    ]
