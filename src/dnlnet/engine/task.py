"""Protocols of tasks, data and metrics that the engine trains and scores."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from dnlnet.engine.scores import Scores


class Data(Protocol):
    """Samples by index, or for training by index and epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class Metric(Protocol):
    """Score accumulated over batches, and without approximation over processes."""

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Add the counts of the other processes; `gather(value)` lists the values of all processes."""
        ...

    def scores(self) -> dict[str, float]:
        """Return the scores by name. The best model has the highest first score."""
        ...


class Task(Protocol):
    """Losses and metric of a task. Its data set defines the contents of a batch."""

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return the terms of the loss by name; training minimises their sum."""
        ...

    def metric(self) -> Any:
        """Return an empty `Metric`."""
        ...

    def score(self, model: Any, batch: Any, metric: Any) -> None:
        """Predict a batch and add it to the metric."""
        ...

    def details(self, metric: Any) -> Mapping[str, Any]:
        """Return details for the log. The score of each class, `by_class`, is also stored with the best model."""
        ...

    def summarize(self, metric: Any, title: str) -> Scores:
        """Return the results of an evaluation, to print and write."""
        ...

    def names(self, batch: Any) -> Sequence[str]:
        """Return the file names of a batch."""
        ...
