"""Prediction with a trained detector."""

# n objects; H, W size of the image

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from dnlnet.data.classes import IGNORE, Classes
from dnlnet.data.images import ImageLike, read_pixels, resized_image
from dnlnet.detection.metric import run_lengths
from dnlnet.detection.network import Detector
from dnlnet.detection.schema import InstanceData
from dnlnet.detection.task import MASK_THRESHOLD
from dnlnet.lens.show.attended_image import AttentionView, DetectedBox, block_views
from dnlnet.lens.show.drawable import DrawableOverlay, prediction_figure
from dnlnet.lens.trace.capture import capture_blocks
from dnlnet.names import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dnlnet.detection.outputs import DetectionOutputs
    from dnlnet.lens.show.attend import AttendRequest, AttendResult

SCORE_THRESHOLD = 0.5


@dataclass(frozen=True, repr=False)
class Detections(DrawableOverlay):
    """Objects detected in an image, most confident first.

    Args:
        image: Pixels in 0..255, (H, W, 3).
        boxes: Left, top, right and bottom, (n, 4).
        labels: Classes, from 0, (n,).
        scores: Confidence in 0..1, (n,).
        masks: Pixels of each object, (n, H, W).
        classes: Names and colours of the classes.
    """

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    masks: NDArray[np.bool_]
    classes: Classes

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.image.shape[:2]
        found = [f"{count} {printable(name)}" for name, count in Counter(self.names()).most_common()]
        return f"Detections({width} x {height}: {', '.join(found) or 'nothing'})"

    def names(self) -> list[str]:
        """Return the class name of each object."""
        return [self.classes.names[label] for label in self.labels]

    def overlay(self) -> NDArray[np.uint8]:
        """Draw masks, boxes, names and scores on the image, (H, W, 3)."""
        drawn = torch.from_numpy(self.image.copy()).permute(2, 0, 1)
        if len(self):
            colours = [tuple(self.classes.palette[label]) for label in self.labels]
            text = [f"{name} {score:.2f}" for name, score in zip(self.names(), self.scores, strict=True)]
            drawn = draw_segmentation_masks(drawn, torch.from_numpy(self.masks), alpha=0.5, colors=colours)
            width = max(1, round(min(self.image.shape[:2]) / 160))
            drawn = draw_bounding_boxes(
                drawn,
                torch.from_numpy(self.boxes),
                text,
                colours,
                width=width,
                label_colors="white",
                fill_labels=True,
            )
        return drawn.permute(1, 2, 0).numpy()

    def plot(self) -> "Figure":
        """Plot the overlay, with the highest score of each class."""
        best: dict[str, float] = {}
        for name, score in zip(self.names(), self.scores, strict=True):
            best.setdefault(name, float(score))
        return prediction_figure(self.overlay(), self.classes, best)

    def label_map(self) -> NDArray[np.uint8]:
        """Return the class of the most confident object at each pixel, (H, W), or IGNORE without one."""
        labels = np.full(self.image.shape[:2], IGNORE, dtype=np.uint8)
        for label, mask in reversed(list(zip(self.labels, self.masks, strict=True))):
            labels[mask] = label
        return labels

    def drawn_boxes(self) -> list[DetectedBox]:
        """Return the boxes in the form that a page draws."""
        return [
            DetectedBox(int(label), float(score), (float(left), float(top), float(right), float(bottom)))
            for label, score, (left, top, right, bottom) in zip(self.labels, self.scores, self.boxes, strict=True)
        ]

    def results(self, image_id: int | str) -> list[dict[str, Any]]:
        """Return the objects in COCO's results format."""
        numbers = self.classes.numbers or range(1, len(self.classes) + 1)
        height, width = self.image.shape[:2]
        return [
            {
                "image_id": image_id,
                "category_id": int(numbers[label]),
                "category": self.classes.names[label],
                "score": float(score),
                "bbox": [float(left), float(top), float(right - left), float(bottom - top)],
                "segmentation": {"size": [height, width], "counts": mask},
            }
            for label, score, (left, top, right, bottom), mask in zip(
                self.labels, self.scores, self.boxes, run_lengths(torch.from_numpy(self.masks)), strict=True
            )
        ]


class DetectionModel:
    """Trained detector.

    Args:
        network: Network.
        classes: Classes of its labels.
        data: Size of resized images, as in training.
        device: Device of the network.
    """

    def __init__(
        self,
        network: Detector,
        classes: Classes,
        data: InstanceData,
        device: torch.device | str = "cpu",
    ) -> None:
        self.network, self.classes, self.data, self.device = network.eval().to(device), classes, data, device

    def predict(self, image: ImageLike, *, threshold: float = SCORE_THRESHOLD) -> Detections:
        """Return the objects in an image (see `read_pixels`) with a score of at least `threshold`."""
        pixels = read_pixels(image)
        height, width = pixels.shape[:2]
        resized = resized_image(pixels, self.data.resized((height, width)))
        tensor = torch.from_numpy(resized.copy()).permute(2, 0, 1).to(self.device) / 255
        (found,) = self.network.detect([tensor], [(height, width)], threshold)
        found = {name: value.cpu() for name, value in found.items()}
        return Detections(
            pixels,
            found["boxes"].float().numpy(),
            found["labels"].numpy() - 1,
            found["scores"].float().numpy(),
            (found["masks"][:, 0] >= MASK_THRESHOLD).numpy(),
            self.classes,
        )

    def covered(self, size: tuple[int, int]) -> tuple[float, float]:
        """Return the share of the feature maps that an image of this size covers; the rest is padding."""
        multiple = self.network.transform.size_divisible  # images are padded to it
        height, width = (length / (multiple * ceil(length / multiple)) for length in self.data.resized(size))
        return height, width

    def attention_views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Return the attention of every block in one pass over an image (H, W, 3)."""
        with capture_blocks(self.network) as blocks:
            found = self.predict(pixels)
        height, width = pixels.shape[:2]
        views = block_views(title, blocks, found.label_map(), self.covered((height, width)))
        return [replace(view, boxes=found.drawn_boxes()) for view in views]

    def outputs(self, *, threshold: float = SCORE_THRESHOLD) -> "DetectionOutputs":
        """Return the writer of detections with a score of at least `threshold`."""
        from dnlnet.detection.outputs import DetectionOutputs

        return DetectionOutputs(self, threshold)

    def attend(self, models: Mapping[str, Any], request: "AttendRequest") -> "AttendResult":
        """Show the attention of several models, including this one, in images."""
        from dnlnet.lens.show.attend import attend_images

        return attend_images(models, request)
