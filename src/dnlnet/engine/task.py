"""What the engine asks of a task, and nothing more."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn


class Data(Protocol):
    """Samples by index, or to train on by index and epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class Metric(Protocol):
    """A score that is counted batch by batch, and over several processes without loss."""

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Take in what the other processes counted; `gather` gives a list of every process's value of something."""
        ...

    def scores(self) -> dict[str, float]:
        """The numbers by name; the first one says which of two models is better, higher being better."""
        ...


class Task(Protocol):
    """How a batch becomes losses, predictions and a score. A batch is whatever the task's data gives."""

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """The terms whose sum is minimised."""
        ...

    def metric(self) -> Any:
        """An empty `Metric`."""
        ...

    def score(self, model: Any, batch: Any, metric: Any) -> None:
        """Predict a batch and count it."""
        ...

    def details(self, metric: Any) -> Mapping[str, Any]:
        """More than the scores, for the log."""
        ...

    def names(self, batch: Any) -> Sequence[str]:
        """The files that a batch comes from."""
        ...
