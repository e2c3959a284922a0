"""Detection with masks as a task: how a batch becomes losses, detections and a score."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from dnlnet.data.classes import Classes
from dnlnet.detection.data.samples import InstanceBatch, WholeBatch
from dnlnet.detection.metric import AveragePrecision
from dnlnet.detection.network import Detector
from dnlnet.engine.scores import Scores, Table, class_bars, number
from dnlnet.files import write_json

MASK_THRESHOLD = 0.5


class DetectionTask:
    """What is to be learnt: boxes, classes and masks of objects.

    Args:
        classes: of the objects; label k is the class k - 1.
        truth: the objects to be scored against, in COCO's format; without it there is nothing to score.
    """

    def __init__(self, classes: Classes, truth: Mapping[str, Any] | None = None) -> None:
        self.classes, self.truth = classes, truth

    def losses(self, model: nn.Module, batch: InstanceBatch) -> Mapping[str, Tensor]:
        """The five losses of Mask R-CNN: of the proposals' objectness and boxes, of classes, boxes and masks."""
        losses: Mapping[str, Tensor] = model([image / 255 for image in batch.image], batch.target)
        return losses

    def score(self, model: Detector, batch: WholeBatch, metric: AveragePrecision) -> None:
        """Detect in a batch, at the sizes of its files, and note what was found."""
        found = model.detect([image / 255 for image in batch.image], batch.size)
        for image, one in zip(batch.image_id, found, strict=True):
            masks = one["masks"] >= MASK_THRESHOLD
            metric.update(image, one["boxes"], one["labels"], one["scores"], masks)

    def metric(self) -> AveragePrecision:
        """Nothing found yet."""
        if self.truth is None:
            raise ValueError("there are no objects to score against; give the task the truth of its validation data")
        return AveragePrecision(self.truth)

    def details(self, metric: AveragePrecision) -> dict[str, dict[str, float | None]]:
        """The box AP of each class by name, None for a class that is in no image."""
        return {"by_class": dict(zip(self.classes.names, metric.class_scores("box"), strict=True))}

    def names(self, batch: InstanceBatch) -> Sequence[str]:
        """The files that a batch comes from."""
        return batch.name

    def summarize(self, metric: AveragePrecision, title: str) -> Scores:
        """Return COCO's average precision of boxes and masks, and that of each class."""
        values = metric.known_scores()
        by_class = {
            kind: dict(zip(self.classes.names, metric.class_scores(kind), strict=True)) for kind in ("box", "mask")
        }
        statistics = dict.fromkeys(name.split()[1] for name in values)
        rows = [{"": kind} | {name: number(values[f"{kind} {name}"]) for name in statistics} for kind in by_class]
        return Scores(
            values,
            [Table("Box AP of the classes", class_bars("AP", by_class["box"])), Table(title, rows)],
            {**values, "by_class": by_class},
            files={"results": lambda path: write_json(path, metric.results())},
        )
