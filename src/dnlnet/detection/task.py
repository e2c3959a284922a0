"""Training losses and scores of detection with instance masks."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from dnlnet.data.classes import Classes
from dnlnet.detection.data.samples import InstanceSample, TestSample
from dnlnet.detection.metric import AveragePrecision
from dnlnet.detection.network import Detector, ImageFeatures
from dnlnet.engine.scores import Scores, Table, class_bars, number
from dnlnet.files import write_json

MASK_THRESHOLD = 0.5


class DetectionTask:
    """Task of detecting the boxes, classes and masks of objects.

    Args:
        classes: Classes of the objects; label k is class k - 1.
        truth: Ground truth for scoring, in COCO's format. Not needed for training.
    """

    def __init__(self, classes: Classes, truth: Mapping[str, Any] | None = None) -> None:
        self.classes, self.truth = classes, truth

    def losses(self, model: nn.Module, batch: Sequence[InstanceSample]) -> Mapping[str, Tensor]:
        """Return the five losses of Mask R-CNN: objectness and boxes of proposals; classes, boxes and masks."""
        losses: Mapping[str, Tensor] = model([_input(one) for one in batch], [one.target for one in batch])
        return losses

    def score(self, model: Detector, batch: Sequence[TestSample], metric: AveragePrecision) -> None:
        """Detect objects in a batch, at the sizes of its files, and add them to the metric."""
        detected = model.detect([_input(one) for one in batch], [one.size for one in batch])
        for one, found in zip(batch, detected, strict=True):
            masks = found["masks"] >= MASK_THRESHOLD
            metric.update(one.image_id, found["boxes"], found["labels"], found["scores"], masks)

    def metric(self) -> AveragePrecision:
        """Return an empty metric."""
        if self.truth is None:
            raise ValueError("there is no ground truth to score against; pass truth= of the validation data")
        return AveragePrecision(self.truth)

    def details(self, metric: AveragePrecision) -> dict[str, dict[str, float | None]]:
        """Return the box AP of each class; None for a class without objects."""
        return {"by_class": dict(zip(self.classes.names, metric.class_scores("box"), strict=True))}

    def names(self, batch: Sequence[InstanceSample]) -> Sequence[str]:
        """Return the files of a batch."""
        return [one.name for one in batch]

    def summarize(self, metric: AveragePrecision, title: str) -> Scores:
        """Return COCO's average precision of boxes and masks, in total and per class."""
        values = metric.known_scores()
        by_class = {
            kind: dict(zip(self.classes.names, metric.class_scores(kind), strict=True)) for kind in ("box", "mask")
        }
        statistics = dict.fromkeys(name.split()[1] for name in values)
        rows = [{"": kind} | {name: number(values[f"{kind} {name}"]) for name in statistics} for kind in by_class]
        return Scores(
            values,
            [Table("Box AP per class", class_bars("AP", by_class["box"])), Table(title, rows)],
            {**values, "by_class": by_class},
            files={"results": lambda path: write_json(path, metric.results())},
        )


def _input(sample: InstanceSample | TestSample) -> Any:
    """Return the image in 0..1, or its features."""
    return sample.image if isinstance(sample.image, ImageFeatures) else sample.image / 255
