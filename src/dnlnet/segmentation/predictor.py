"""Predictions of a segmentation network for one image."""

# K classes, H, W size of the image

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from dnlnet.backbones.fold import first_tensor
from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import Classes
from dnlnet.data.images import ImageLike, read_pixels
from dnlnet.lens.show.attended_image import AttentionView, block_views
from dnlnet.lens.show.drawable import DrawableOverlay, prediction_figure
from dnlnet.lens.trace.capture import capture_blocks
from dnlnet.names import printable
from dnlnet.progress import SILENT, Progress
from dnlnet.segmentation.inference import MARGIN, Inference, Network, tiled_labels, tiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dnlnet.data.decoders import Labels
    from dnlnet.lens.show.attend import AttendRequest, AttendResult
    from dnlnet.segmentation.outputs import SegmentationOutputs

MAX_PIXELS = 4_000_000
TILE_PIXELS = 1_048_576  # attention takes quadratic time, and training crops are no larger


@dataclass(frozen=True, repr=False)
class Prediction(DrawableOverlay):
    """Predicted class of each pixel of an image.

    Args:
        image: Image (H, W, 3) in 0..255.
        labels: Class of each pixel, (H, W).
        classes: Names and colours of the classes.
        scores: Probability of each class, (K, H, W). None for an image of more than `max_pixels`.
    """

    image: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    classes: Classes
    scores: NDArray[np.float32] | None = None

    def colours(self) -> NDArray[np.uint8]:
        """Return an image (H, W, 3) with each pixel in the colour of its class."""
        return self.classes.paint(self.labels)

    def overlay(self, opacity: float = 0.5) -> NDArray[np.uint8]:
        """Return the image (H, W, 3) blended with the colours of the classes."""
        blended = Image.blend(Image.fromarray(self.image), Image.fromarray(self.colours()), opacity)
        return np.asarray(blended)

    def plot(self) -> "Figure":
        """Plot the overlay with a legend of the classes and their shares."""
        return prediction_figure(self.overlay(), self.classes, self.shares())

    def shares(self) -> dict[str, float]:
        """Return the share of the image that each class covers, largest first. Absent classes are left out."""
        return self.classes.shares(self.labels)

    def __repr__(self) -> str:
        height, width = self.labels.shape
        said = [f"{printable(name)} {share:.0%}" for name, share in list(self.shares().items())[:3]]
        return f"Prediction({width} x {height}: {', '.join(said)})"


class SegmentationModel:
    """A trained network with its classes and inference settings.

    Args:
        network: Network that returns logits of normalised images, alone or as its first output.
        classes: Classes of the logits.
        inference: Inference settings. Default: one pass over the whole image.
        device: Device of the network.
    """

    def __init__(
        self,
        network: nn.Module,
        classes: Classes,
        inference: Inference | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.network, self.classes, self.device = network.eval().to(device), classes, device
        self.inference = inference or Inference()

    @torch.inference_mode()
    def predict(
        self,
        image: ImageLike,
        *,
        max_pixels: int = MAX_PIXELS,
        progress: Progress = SILENT,
    ) -> Prediction:
        """Predict the class of each pixel of an image.

        An image of more than `max_pixels` gets no scores. If it is larger than `max_pixels` even after the recipe's
        resizing, it is cut into tiles of about a million pixels, at the scale of the whole image.

        Args:
            image: Image in any form that `read_pixels` accepts.
            max_pixels: Pixels of the largest image that is predicted in one piece and gets scores.
            progress: Observer of the passes through the network.
        """
        pixels = read_pixels(image)
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        height, width = pixels.shape[:2]
        scale = self.inference.scale((height, width))
        tile_pixels, margin, inference = height * width, round(MARGIN / scale), self.inference
        if height * width * scale**2 > max_pixels:
            tile_pixels = int(min(max_pixels, TILE_PIXELS) / scale**2)
            inference = self.inference.for_tiles_of((height, width))
        seen = [tile.seen_size for tile in tiles((height, width), tile_pixels, margin)]
        inference.require_affordable((height, width), sum(map(inference.work, seen)))
        total = sum(map(inference.passes, seen))
        watched = progress if total > 1 else SILENT  # a single pass needs no bar
        with watched.track("passes", total) as bar:
            network = self._counted(bar.advance)
            if height * width > max_pixels:
                labels = tiled_labels(
                    lambda part: inference.labels(network, self._normalised(part)).cpu(), tensor, tile_pixels, margin
                )
                return Prediction(pixels, labels.numpy(), self.classes)
            scores = inference(network, self._normalised(tensor)).cpu().softmax(dim=1)[0]
        labels = scores.argmax(dim=0).to(torch.uint8)
        return Prediction(pixels, labels.numpy(), self.classes, scores.float().numpy())

    @torch.inference_mode()
    def logits(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits (1, K, H, W) of an image (3, H, W) in 0..255."""
        return self.inference(self._counted(lambda: None), self._normalised(image)).cpu()

    def _normalised(self, image: torch.Tensor) -> torch.Tensor:
        return normalised(image[None].to(self.device))

    def _counted(self, asked: Callable[[], None]) -> Network:
        """Return a function that computes the network's logits and calls `asked` after each pass."""

        def network(images: torch.Tensor) -> torch.Tensor:
            logits = first_tensor(self.network(images))
            asked()
            return logits

        return network

    def single_pass(self) -> "SegmentationModel":
        """Return a model with the same network and one pass per image: no windows, one scale, no flip."""
        return SegmentationModel(self.network, self.classes, self.inference.single_pass(), self.device)

    def attention_views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Return the attention views of every block in one pass over the whole image (H, W, 3)."""
        once = self.single_pass()
        height, width = pixels.shape[:2]
        with capture_blocks(self.network) as blocks:
            prediction = once.predict(pixels, max_pixels=height * width)
        return block_views(title, blocks, prediction.labels, once.inference.covered((height, width)))

    def outputs(self, *, submission: str | None = None, max_pixels: int = MAX_PIXELS) -> "SegmentationOutputs":
        """Return the writer of prediction files, in the format of the benchmark `submission` if given."""
        from dnlnet.segmentation.outputs import SegmentationOutputs

        return SegmentationOutputs(self, submission, max_pixels)

    def attend(
        self,
        models: Mapping[str, Any],
        request: "AttendRequest",
        labels: "Callable[[Path], Labels | None] | None" = None,
    ) -> "AttendResult":
        """Show the attention of the models in images. `labels` finds the labels of an image."""
        from dnlnet.lens.show.attend import attend_images

        return attend_images(models, request, labels)
