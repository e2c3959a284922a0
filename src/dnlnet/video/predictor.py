"""What a video network says about one video."""

# K classes, V views, T frames, H, W size of a frame

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.classes import Classes
from dnlnet.lens.show.drawable import Drawable
from dnlnet.names import in_figure, printable
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.frames import FOLDER_RATE
from dnlnet.video.data.opening import VideoLike, open_any
from dnlnet.video.data.samples import views_of
from dnlnet.video.data.video import Video
from dnlnet.video.metric import averaged
from dnlnet.video.views import VIEWS_PER_BATCH, view_logits

if TYPE_CHECKING:
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult
    from dnlnet.video.outputs import VideoOutputs


@dataclass(frozen=True, repr=False)
class Action(Drawable):
    """The classes of a video.

    Args:
        scores: (K,), the probability of each class.
        classes: what they mean.
        notes: what is wrong with the video although it could be used, such as that it is cut off.

    >>> from dnlnet.video.data.videos import named_classes
    >>> Action(np.array([0.2, 0.7, 0.1], np.float32), named_classes(["run", "swim", "jump"])).top(2)
    {'swim': 0.7, 'run': 0.2}
    """

    scores: NDArray[np.float32]
    classes: Classes
    notes: Sequence[str] = ()

    def top(self, count: int = 5) -> dict[str, float]:
        """The most confident classes with their probabilities, in falling order."""
        order = np.argsort(-self.scores, kind="stable")[:count]
        return {self.classes.names[index]: round(float(self.scores[index]), 6) for index in order}

    def plot(self) -> Figure:
        """Bars of the most confident classes."""
        best = self.top()
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
    """A trained video network with what is needed to use it.

    Args:
        network: gives logits (B, K) for normalised clips.
        classes: what its outputs mean.
        clip: which frames make a clip.
        pixels: how clips are normalised.
        clips, crops, short_side: the views of a video, whose softmax is averaged.
        views_per_batch: views that the network is given together.
        device: where the network runs.
    """

    def __init__(
        self,
        network: nn.Module,
        classes: Classes,
        clip: Clip,
        pixels: Pixels,
        *,
        clips: int = 10,
        crops: int = 3,
        short_side: int = 256,
        views_per_batch: int = VIEWS_PER_BATCH,
        device: torch.device | str = "cpu",
    ) -> None:
        self.network, self.classes, self.device = network.eval().to(device), classes, device
        self.clip, self.pixels, self.views_per_batch = clip, pixels, views_per_batch
        self.clips, self.crops, self.short_side = clips, crops, short_side

    def predict(self, video: VideoLike, *, rate: float = FOLDER_RATE) -> Action:
        """The class of a video: a file, a URL, a folder of frames, or frames (T, H, W, 3) in memory.

        `rate` is that of frames which are no video file, in frames per second.
        """
        return self.predict_views(*self.views(video, rate))

    def views(self, video: VideoLike, rate: float = FOLDER_RATE) -> tuple[Tensor, list[str]]:
        """(V, 3, T, H, W) of 0..255, the views of a video; and what is wrong with it although it can be used."""
        with open_any(video, rate) as opened:
            views = views_of(opened, self.clip, self.clips, self.crops, self.short_side)
            return views, list(opened.notes)

    @torch.inference_mode()
    def predict_views(self, views: Tensor, notes: Sequence[str] = ()) -> Action:
        """The class of the video that these are views of."""
        logits = view_logits(lambda some: self.network(self.normalised(some)), views, self.views_per_batch)
        return Action(averaged(logits).cpu().numpy(), self.classes, notes)

    def frames(self, video: Video) -> NDArray[np.uint8]:
        """(T, H, W, 3), the frames of the clip in the middle of a video, whole, as the network looks at them."""
        start = float(self.clip.spread_starts(1, video.duration)[0])
        return video.frames(self.clip.times(start, video.duration), self.short_side)

    def normalised(self, clips: Tensor) -> Tensor:
        """(B, 3, T, H, W) of 0..255 as the network takes them."""
        return self.pixels.normalised(clips.to(self.device))

    def outputs(self) -> "VideoOutputs":
        """Return the writer of files of predictions."""
        from dnlnet.video.outputs import VideoOutputs

        return VideoOutputs(self)

    def attend(self, models: Mapping[str, Any], request: "AttendRequest") -> "AttendResult":
        """Show what models, of which this is one, attend to in the clip in the middle of each video."""
        from dnlnet.video.attend_clips import attend_clips

        return attend_clips(models, request)
