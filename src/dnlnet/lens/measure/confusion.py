"""Confusion matrix of pixels, with IoU per class and mean IoU."""

# K classes

import math
from collections.abc import Callable

import torch
from torch import Tensor


class ConfusionMatrix:
    """Number of pixels with label k predicted as class l, over any number of images.

    Args:
        classes: Number of classes. Labels and predictions are 0..classes - 1.
        ignore: Label of pixels that do not count.

    >>> matrix = ConfusionMatrix(classes=2)
    >>> matrix.update(prediction=torch.tensor([0, 1, 1, 1]), labels=torch.tensor([0, 0, 1, 255]))
    >>> matrix.iou()
    tensor([0.5000, 0.5000], dtype=torch.float64)
    >>> matrix.miou()
    0.5
    """

    def __init__(self, classes: int, ignore: int = 255) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if 0 <= ignore < classes:
            raise ValueError(f"the ignore value {ignore} is also a class: choose one outside 0..{classes - 1}")
        self.classes, self.ignore = classes, ignore
        self.counts = torch.zeros(classes, classes, dtype=torch.int64)  # (label, prediction)

    def update(self, prediction: Tensor, labels: Tensor) -> None:
        """Count the pixels of one or more images, given as class indices of any shape."""
        if prediction.shape != labels.shape:
            raise ValueError(f"prediction is {tuple(prediction.shape)} but labels are {tuple(labels.shape)}")
        counted = labels != self.ignore
        truth, guess = labels[counted].long(), prediction[counted].long()
        self._check(truth, "label", f" and is not the ignore value {self.ignore}")
        self._check(guess, "prediction", "")
        pairs = torch.bincount(truth * self.classes + guess, minlength=self.classes**2)
        self.counts += pairs.view(self.classes, self.classes).to(self.counts.device)

    def merge(self, gather: Callable[[Tensor], list[Tensor]]) -> None:
        """Add the counts of other processes; `gather` returns those of every process.

        >>> matrix = ConfusionMatrix(2)
        >>> matrix.update(torch.tensor([1]), torch.tensor([1]))
        >>> matrix.merge(lambda counts: [counts, counts])
        >>> int(matrix.counts.sum())
        2
        """
        self.counts = torch.stack(gather(self.counts)).sum(dim=0)

    @property
    def count(self) -> int:
        """Number of counted pixels. Without any, there is no score."""
        return int(self.counts.sum())

    def scores(self) -> dict[str, float]:
        """Return mean IoU and pixel accuracy; nan if no pixel was counted."""
        return {"miou": self.miou(), "accuracy": self.accuracy()}

    def known_scores(self) -> dict[str, float | None]:
        """Return the scores with None for nan, which JSON does not have."""
        return {name: None if math.isnan(value) else value for name, value in self.scores().items()}

    def accuracy(self) -> float:
        """Return the share of counted pixels with the right class; nan if there are none."""
        return float(self.counts.diagonal().sum() / self.counts.sum())

    def iou(self) -> Tensor:
        """|label and prediction| / |label or prediction| of each class, (K,); nan for a class in neither."""
        both = self.counts.diagonal().double()
        either = self.counts.sum(dim=0) + self.counts.sum(dim=1) - self.counts.diagonal()
        return both / either

    def known_iou(self) -> list[float | None]:
        """Return the IoU of each class as numbers, with None for nan, which JSON does not have."""
        return [None if math.isnan(iou) else iou for iou in self.iou().tolist()]

    def miou(self) -> float:
        """Return the mean IoU over the classes that occur in labels or predictions."""
        return float(self.iou().nanmean())

    def _check(self, indices: Tensor, kind: str, exception: str) -> None:
        outside = indices[(indices < 0) | (indices >= self.classes)]
        if len(outside):
            raise ValueError(f"{kind} {int(outside[0])} is outside 0..{self.classes - 1}{exception}")
