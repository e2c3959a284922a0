"""Protocols of tasks, data and metrics that the engine trains and scores."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from dnlnet.engine.scores import Scores


class Data(Protocol):
    """Samples by index; training data by index and epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class Metric(Protocol):
    """Score that is accumulated batch by batch, and exactly over several processes."""

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Add the counts of the other processes; `gather(value)` lists the values of all processes."""
        ...

    def scores(self) -> dict[str, float]:
        """Return the scores by name; the best model has the highest first score."""
        ...


class Task(Protocol):
    """Losses and metric of a task, whose data set defines what a batch is."""

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return the terms whose sum is minimised."""
        ...

    def metric(self) -> Any:
        """Return an empty `Metric`."""
        ...

    def score(self, model: Any, batch: Any, metric: Any) -> None:
        """Predict a batch and add it to the metric."""
        ...

    def details(self, metric: Any) -> Mapping[str, Any]:
        """Return details for the log; `by_class`, the score of each class, is also stored with the best model."""
        ...

    def summarize(self, metric: Any, title: str) -> Scores:
        """Return what an evaluation found, ready to be printed and written."""
        ...

    def names(self, batch: Any) -> Sequence[str]:
        """Return the file names of a batch."""
        ...
