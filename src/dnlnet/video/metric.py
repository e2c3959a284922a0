"""Top-1 and top-5 accuracy of videos."""

# B videos, V views of a video, K classes

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

RANKS = {"top1": 1, "top5": 5}  # k is at most the number of classes


class TopK:
    """Accuracy of the k most confident classes.

    Among classes with equal scores, the lower number ranks first. Scores with nan are wrong.

    Args:
        classes: Number of classes; labels are 0..classes - 1.

    >>> metric = TopK(classes=3)
    >>> metric.update(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.1, 0.4]]), torch.tensor([0, 2]))
    >>> metric.scores(), metric.class_scores()
    ({'top1': 0.5, 'top5': 1.0}, [1.0, None, 0.0])
    """

    def __init__(self, classes: int) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        self.classes = classes
        self.counts = torch.zeros(1 + len(RANKS), classes, dtype=torch.int64)  # all samples, then correct ones
        self.skipped: list[str] = []  # samples without a prediction, with the reason
        self.notes: list[str] = []  # defects of samples that count

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Count samples with these scores, (B, K), and labels, (B,)."""
        if scores.dim() != 2 or scores.shape[1] != self.classes or labels.shape != scores.shape[:1]:
            shapes = f"scores are {tuple(scores.shape)} and labels {tuple(labels.shape)}"
            raise ValueError(f"{shapes}; expected (B, {self.classes}) and (B,)")
        scores, labels = scores.detach().cpu(), labels.cpu().long()
        outside = labels[(labels < 0) | (labels >= self.classes)]
        if len(outside):
            raise ValueError(f"label {int(outside[0])} is outside 0..{self.classes - 1}")
        own = scores.gather(1, labels[:, None])
        better = (scores > own) | ((scores == own) & (torch.arange(self.classes) < labels[:, None]))
        rank = better.sum(dim=1).where(scores.isfinite().all(dim=1), self.classes)
        correct = [rank < min(k, self.classes) for k in RANKS.values()]
        for row, chosen in enumerate([torch.ones_like(labels, dtype=torch.bool), *correct]):
            self.counts[row] += labels[chosen].bincount(minlength=self.classes)

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Add the counts of other processes; `gather` returns those of every process.

        >>> metric = TopK(2)
        >>> metric.update(torch.tensor([[0.7, 0.3]]), torch.tensor([0]))
        >>> metric.merge(lambda mine: [mine, mine])
        >>> metric.count
        2
        """
        parts: list[tuple[Tensor, list[str], list[str]]] = gather((self.counts, self.skipped, self.notes))
        self.counts = torch.stack([counts for counts, _, _ in parts]).sum(dim=0)
        self.skipped = sorted(reason for _, reasons, _ in parts for reason in reasons)
        self.notes = sorted(note for _, _, notes in parts for note in notes)

    @property
    def count(self) -> int:
        """Number of counted samples."""
        return int(self.counts[0].sum())

    def scores(self) -> dict[str, float]:
        """Return top-1 and top-5 accuracy; nan without samples."""
        count, *correct = self.counts.sum(dim=1).tolist()
        return {name: value / count if count else math.nan for name, value in zip(RANKS, correct, strict=True)}

    def class_scores(self) -> list[float | None]:
        """Return top-1 accuracy of each class; None for a class without samples."""
        counts, correct = self.counts[0].tolist(), self.counts[1].tolist()
        return [value / count if count else None for value, count in zip(correct, counts, strict=True)]


def averaged(logits: Tensor) -> Tensor:
    """Return the mean of softmax over the views of a video, (V, K) -> (K,).

    >>> averaged(torch.tensor([[0.0, 0.0], [99.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    return logits.float().softmax(dim=1).mean(dim=0)
