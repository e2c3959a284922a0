"""Training losses and scores of detection with instance masks."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from dnlnet.data.classes import Classes
from dnlnet.detection.data.samples import InstanceBatch, TestBatch
from dnlnet.detection.metric import AveragePrecision
from dnlnet.detection.network import Detector
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

    def losses(self, model: nn.Module, batch: InstanceBatch) -> Mapping[str, Tensor]:
        """Return the five losses of Mask R-CNN: objectness and boxes of proposals; classes, boxes and masks."""
        losses: Mapping[str, Tensor] = model([image / 255 for image in batch.image], batch.target)
        return losses

    def score(self, model: Detector, batch: TestBatch, metric: AveragePrecision) -> None:
        """Detect objects in a batch, at the sizes of its files, and add them to the metric."""
        found = model.detect([image / 255 for image in batch.image], batch.size)
        for image, one in zip(batch.image_id, found, strict=True):
            masks = one["masks"] >= MASK_THRESHOLD
            metric.update(image, one["boxes"], one["labels"], one["scores"], masks)

    def metric(self) -> AveragePrecision:
        """Return an empty metric."""
        if self.truth is None:
            raise ValueError("there is no ground truth to score against; pass truth= of the validation data")
        return AveragePrecision(self.truth)

    def details(self, metric: AveragePrecision) -> dict[str, dict[str, float | None]]:
        """Return the box AP of each class; None for a class without objects."""
        return {"by_class": dict(zip(self.classes.names, metric.class_scores("box"), strict=True))}

    def names(self, batch: InstanceBatch) -> Sequence[str]:
        """Return the files of a batch."""
        return batch.name

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
