"""What a video network says about one video."""

# K classes, V views, T frames, H, W size of a frame

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.classes import Classes
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.samples import views_of
from dnlnet.video.data.video import open_video
from dnlnet.video.metric import averaged
from dnlnet.video.views import VIEWS_PER_BATCH, view_logits


@dataclass(frozen=True)
class Action:
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

    def predict(self, video: Path | str) -> Action:
        """The class of a video: a file, or a folder of frames."""
        return self.predict_views(*self.views(Path(video)))

    def views(self, video: Path) -> tuple[Tensor, list[str]]:
        """(V, 3, T, H, W) of 0..255, the views of a video; and what is wrong with it although it can be used."""
        with open_video(video) as opened:
            views = views_of(opened, self.clip, self.clips, self.crops, self.short_side)
            return views, list(opened.notes)

    @torch.inference_mode()
    def predict_views(self, views: Tensor, notes: Sequence[str] = ()) -> Action:
        """The class of the video that these are views of."""
        logits = view_logits(lambda some: self.network(self.normalised(some)), views, self.views_per_batch)
        return Action(averaged(logits).cpu().numpy(), self.classes, notes)

    def frames(self, video: Path | str) -> NDArray[np.uint8]:
        """(T, H, W, 3), the frames of the clip in the middle of a video, whole, as the network looks at them."""
        with open_video(Path(video)) as opened:
            start = float(self.clip.spread_starts(1, opened.duration)[0])
            return opened.frames(self.clip.times(start, opened.duration), self.short_side)

    def normalised(self, clips: Tensor) -> Tensor:
        """(B, 3, T, H, W) of 0..255 as the network takes them."""
        return self.pixels.normalised(clips.to(self.device))
