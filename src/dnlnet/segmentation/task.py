"""Semantic segmentation as a training task: losses, predictions and scores of a batch."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import IGNORE, Classes
from dnlnet.data.samples import Sample
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.lens.measure.confusion import ConfusionMatrix
from dnlnet.segmentation.data.features import FeatureSample
from dnlnet.segmentation.inference import Inference
from dnlnet.segmentation.losses import SegmentationLoss


class SegmentationTask:
    """Task of predicting the class of each pixel, from images or from features of a frozen backbone.

    Args:
        classes: Classes of the labels.
        loss: Loss of the model's outputs.
        inference: Inference settings for predictions. Default: one pass over the whole image.
    """

    def __init__(self, classes: Classes, loss: SegmentationLoss, inference: Inference | None = None) -> None:
        self.classes, self.loss, self.inference = classes, loss, inference or Inference()

    def losses(self, model: nn.Module, batch: Sample | FeatureSample) -> Mapping[str, Tensor]:
        """Return the loss terms by name; training minimises their sum."""
        inputs = batch.features if isinstance(batch, FeatureSample) else normalised(batch.image)
        losses: Mapping[str, Tensor] = self.loss(model(inputs), batch.labels)
        return losses

    def predict(self, model: nn.Module, batch: Sample | FeatureSample) -> Tensor:
        """Return the most likely class of each pixel, (B, H, W)."""
        if isinstance(batch, FeatureSample):
            height, width = batch.labels.shape[-2:]
            logits: Tensor = model(batch.features).logits
            return logits[..., :height, :width].argmax(dim=1)
        return self.inference(lambda images: model(images).logits, normalised(batch.image)).argmax(dim=1)

    def score(self, model: nn.Module, batch: Sample | FeatureSample, metric: ConfusionMatrix) -> None:
        """Predict a batch and add it to the metric."""
        metric.update(self.predict(model, batch), batch.labels)

    def details(self, metric: ConfusionMatrix) -> dict[str, dict[str, float | None]]:
        """Return the IoU of each class by name, None for a class in neither labels nor predictions."""
        return {"by_class": dict(zip(self.classes.names, metric.known_iou(), strict=True))}

    def summarize(self, metric: ConfusionMatrix, title: str) -> Scores:
        """Return the IoU of each class, their mean, and pixel accuracy."""
        from dnlnet.lens.show.charts import confusion_figure
        from dnlnet.lens.show.panels import save_figure

        details = self.details(metric)
        caption = ", ".join(f"{name} {value:.4f}" for name, value in metric.scores().items())
        if not metric.count:
            caption = "no score: every label is ignored"
        values = metric.known_scores()
        return Scores(
            values,
            [Table(title, class_bars("IoU", details["by_class"]), caption)],
            {**values, **details, "confusion": metric.counts.tolist()},
            files={"picture": lambda path: save_figure(confusion_figure(metric.counts, self.classes), path)},
        )

    def names(self, batch: Sample | FeatureSample) -> Sequence[str]:
        """Return the files that a batch comes from."""
        return batch.name

    def metric(self) -> ConfusionMatrix:
        """Return an empty confusion matrix."""
        return ConfusionMatrix(len(self.classes), IGNORE)
