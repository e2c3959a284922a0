"""Prediction with a trained video network."""

# K classes, V views, T frames, H, W size of a frame

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dnlnet.data.classes import Classes
from dnlnet.lens.show.drawable import Drawable
from dnlnet.names import in_figure, printable
from dnlnet.video.data.opening import FOLDER_RATE, VideoLike, open_any
from dnlnet.video.data.samples import views_of
from dnlnet.video.data.video import Video
from dnlnet.video.metric import averaged
from dnlnet.video.network import view_logits
from dnlnet.video.schema import VideoData, Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dnlnet.lens.show.attend import AttendRequest, AttendResult
    from dnlnet.video.outputs import VideoOutputs


@dataclass(frozen=True, repr=False)
class Action(Drawable):
    """Predicted classes of a video.

    Args:
        scores: Probability of each class, (K,).
        classes: Names and colours of the classes.
        notes: Defects of the video, such as truncation.

    >>> from dnlnet.video.data.videos import named_classes
    >>> Action(np.array([0.2, 0.7, 0.1], np.float32), named_classes(["run", "swim", "jump"])).top(2)
    {'swim': 0.7, 'run': 0.2}
    """

    scores: NDArray[np.float32]
    classes: Classes
    notes: Sequence[str] = ()

    def top(self, count: int = 5) -> dict[str, float]:
        """Return the most confident classes with their probabilities, highest first."""
        order = np.argsort(-self.scores, kind="stable")[:count]
        return {self.classes.names[index]: round(float(self.scores[index]), 6) for index in order}

    def plot(self) -> "Figure":
        """Plot bars of the most confident classes."""
        best = self.top()
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 0.4 + 0.32 * len(best)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh([in_figure(name) for name in best], list(best.values()), color="#3b6fb6")
        axes.bar_label(bars, [f"{score:.0%}" for score in best.values()], padding=4)
        axes.set_xlim(0, 1.12)
        axes.set_xticks([])
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        return figure

    def __repr__(self) -> str:
        return f"Action({', '.join(f'{printable(name)} {score:.0%}' for name, score in self.top(3).items())})"


class VideoModel:
    """Trained video network.

    Args:
        network: Network from normalised clips to logits (B, K).
        classes: Classes of its outputs.
        data: Sampling of clips, and normalisation of their pixels.
        evaluation: Views of a video, over which the softmax is averaged.
        device: Device of the network.
    """

    def __init__(
        self,
        network: nn.Module,
        classes: Classes,
        data: VideoData,
        evaluation: Views,
        device: torch.device | str = "cpu",
    ) -> None:
        self.network, self.classes, self.device = network.eval().to(device), classes, device
        self.clip, self.pixels, self.evaluation = data.clip(), data.pixels(), evaluation

    def predict(self, video: VideoLike, *, rate: float = FOLDER_RATE) -> Action:
        """Classify a video.

        Args:
            video: File, URL, folder of frames, or frames (T, H, W, 3) in memory.
            rate: Frames per second of a folder or of frames in memory.
        """
        return self.predict_views(*self.views(video, rate))

    def views(self, video: VideoLike, rate: float = FOLDER_RATE) -> tuple[Tensor, list[str]]:
        """Return the views of a video, (V, 3, T, H, W) in 0..255, and its defects."""
        with open_any(video, rate) as opened:
            return views_of(opened, self.clip, self.evaluation), list(opened.notes)

    @torch.inference_mode()
    def predict_views(self, views: Tensor, notes: Sequence[str] = ()) -> Action:
        """Classify a video by its views."""
        batch = self.evaluation.views_per_batch
        logits = view_logits(lambda some: self.network(self.normalised(some)), views, batch)
        return Action(averaged(logits).cpu().numpy(), self.classes, notes)

    def frames(self, video: Video) -> NDArray[np.uint8]:
        """Return the frames of the middle clip of a video, resized but not cropped, (T, H, W, 3)."""
        start = float(self.clip.spread_starts(1, video.duration)[0])
        return video.frames(self.clip.times(start, video.duration), self.evaluation.short_side)

    def normalised(self, clips: Tensor) -> Tensor:
        """Normalise clips (B, 3, T, H, W) in 0..255."""
        return self.pixels.normalised(clips.to(self.device))

    def outputs(self) -> "VideoOutputs":
        """Return the writer of predictions."""
        from dnlnet.video.outputs import VideoOutputs

        return VideoOutputs(self)

    def attend(self, models: Mapping[str, Any], request: "AttendRequest") -> "AttendResult":
        """Show the attention of several models, including this one, in the middle clip of each video."""
        from dnlnet.video.attend_clips import attend_clips

        return attend_clips(models, request)
