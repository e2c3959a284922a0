"""Top-1 and top-5 accuracy."""

# B videos or images, V views of one, K classes

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

RANKS = {"top1": 1, "top5": 5}  # with fewer classes, all of them


class TopK:
    """Samples of each class whose label is among the k most confident classes, counted over any number of samples.

    Of classes with equal scores the one with the lower number counts as surer. Scores that are no numbers are wrong.

    Args:
        classes: number of classes; labels are 0..classes - 1.

    >>> metric = TopK(classes=3)
    >>> metric.update(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.1, 0.4]]), torch.tensor([0, 2]))
    >>> metric.scores(), metric.class_scores()
    ({'top1': 0.5, 'top5': 1.0}, [1.0, None, 0.0])
    """

    def __init__(self, classes: int) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        self.classes = classes
        self.counts = torch.zeros(1 + len(RANKS), classes, dtype=torch.int64)  # all of a class, then right ones
        self.skipped: list[str] = []  # samples without a prediction, in words
        self.notes: list[str] = []  # what is wrong with samples that were counted all the same

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Count samples by their scores, the higher the surer, (B, K), and labels, (B,)."""
        if scores.dim() != 2 or scores.shape[1] != self.classes or labels.shape != scores.shape[:1]:
            shapes = f"scores are {tuple(scores.shape)} and labels {tuple(labels.shape)}"
            raise ValueError(f"{shapes}; expected (B, {self.classes}) and (B,)")
        scores, labels = scores.detach().cpu(), labels.cpu().long()
        outside = labels[(labels < 0) | (labels >= self.classes)]
        if len(outside):
            raise ValueError(f"label {int(outside[0])} is outside 0..{self.classes - 1}")
        own = scores.gather(1, labels[:, None])
        surer = (scores > own) | ((scores == own) & (torch.arange(self.classes) < labels[:, None]))
        rank = surer.sum(dim=1).where(scores.isfinite().all(dim=1), self.classes)
        right = [rank < min(k, self.classes) for k in RANKS.values()]
        for row, chosen in enumerate([torch.ones_like(labels, dtype=torch.bool), *right]):
            self.counts[row] += labels[chosen].bincount(minlength=self.classes)

    def skip(self, reasons: Sequence[str]) -> None:
        """Note samples that cannot be read, and so do not count."""
        self.skipped += reasons

    def note(self, notes: Sequence[str]) -> None:
        """Note what is wrong with samples that count all the same."""
        self.notes += notes

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Take in what other processes counted; `gather` gives the list of every process's counts.

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
        """How many samples were counted."""
        return int(self.counts[0].sum())

    def scores(self) -> dict[str, float]:
        """Top-1 and top-5 accuracy; nan if there are no samples."""
        totals = self.counts.sum(dim=1).tolist()
        shares = [right / totals[0] if totals[0] else math.nan for right in totals[1:]]
        return dict(zip(RANKS, shares, strict=True))

    def class_scores(self) -> list[float | None]:
        """The share of each class's samples for which it is the most confident; None for a class without samples."""
        every, right = self.counts[0].tolist(), self.counts[1].tolist()
        return [right[label] / count if count else None for label, count in enumerate(every)]


def averaged(logits: Tensor) -> Tensor:
    """The scores of a video from those of its views: the mean of softmax, (V, K) -> (K,).

    >>> averaged(torch.tensor([[0.0, 0.0], [99.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    return logits.float().softmax(dim=1).mean(dim=0)
