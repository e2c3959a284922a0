"""Training loss and scores of action recognition."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.classes import Classes
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.progress import SILENT, Progress
from dnlnet.video.data.samples import ClipBatch, ViewSample
from dnlnet.video.frozen import Features
from dnlnet.video.metric import TopK, averaged
from dnlnet.video.network import view_logits


class VideoTask:
    """Task of classifying videos.

    Args:
        classes: Classes of the videos.
        pixels: Normalisation of clips.
        views_per_batch: Number of views per batch in testing.
        progress: Progress observer; receives one note per unreadable or damaged video.
    """

    def __init__(self, classes: Classes, pixels: Pixels, views_per_batch: int, progress: Progress = SILENT) -> None:
        self.classes, self.pixels, self.views_per_batch, self.progress = classes, pixels, views_per_batch, progress
        self.unreadable: set[str] = set()
        self.damaged: set[Path] = set()

    def losses(self, model: nn.Module, batch: ClipBatch) -> Mapping[str, Tensor]:
        """Return the cross-entropy of the clips' classes."""
        for reason in batch.skipped:
            if reason not in self.unreadable:
                self.unreadable.add(reason)
                self.progress.say(f"skipped ({len(self.unreadable)} so far): {reason}")
        for note in batch.notes:
            if note.path not in self.damaged:
                self.damaged.add(note.path)
                self.progress.say(f"used although damaged ({len(self.damaged)} so far): {note}")
        return {"loss": F.cross_entropy(model(self._input(batch.clip)), batch.label)}

    def _input(self, clips: Tensor) -> Tensor | Features:
        """Return the input of the network: normalised pixels, or features of a frozen backbone, in float16."""
        return Features(clips) if clips.dtype == torch.float16 else self.pixels.normalised(clips)

    def score(self, model: nn.Module, batch: Sequence[ViewSample], metric: TopK) -> None:
        """Average the softmax over the views of each video and count the video unless it is unreadable."""
        for one in batch:
            metric.notes += map(str, one.notes)
            if one.problem is not None:
                metric.skipped.append(one.problem)
                continue
            logits = view_logits(lambda some: model(self._input(some)), one.views, self.views_per_batch)
            metric.update(averaged(logits)[None], torch.tensor([one.label]))

    def metric(self) -> TopK:
        """Return an empty metric."""
        return TopK(len(self.classes))

    def details(self, metric: TopK) -> dict[str, Any]:
        """Return the top-1 accuracy of each class, and the numbers of counted and unreadable videos."""
        by_class = dict(zip(self.classes.names, metric.class_scores(), strict=True))
        return {"by_class": by_class, "samples": metric.count, "unreadable": len(metric.skipped)}

    def names(self, batch: ClipBatch) -> Sequence[str]:
        """Return the files of a batch."""
        return batch.name

    def summarize(self, metric: TopK, title: str) -> Scores:
        """Return top-1 and top-5 accuracy, and top-1 accuracy of each class."""
        by_class = dict(zip(self.classes.names, metric.class_scores(), strict=True))
        values = metric.scores()
        caption = ", ".join([*(f"{name} {value:.4f}" for name, value in values.items()), f"{metric.count} videos"])
        files = {"unreadable": metric.skipped, "damaged": metric.notes}
        return Scores(
            values,
            [Table(title, class_bars("top1", by_class), caption)],
            {**values, "videos": metric.count, "by_class": by_class, **files},
            [
                *(f"not counted: {reason}" for reason in metric.skipped),
                *(f"counted, although damaged: {note}" for note in metric.notes),
            ],
        )
