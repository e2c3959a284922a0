"""What the engine needs from a task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from dnlnet.engine.scores import Scores


class Data(Protocol):
    """Samples by index, or to train on by index and epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class Metric(Protocol):
    """A score accumulated batch by batch, and exactly over several processes."""

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Add the counts of the other processes; `gather(value)` lists the values of all of them."""
        ...

    def scores(self) -> dict[str, float]:
        """The numbers by name; the first one decides which model is best, higher being better."""
        ...


class Task(Protocol):
    """How a batch becomes losses, predictions and a score. A batch is whatever the task's data set yields."""

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """The terms whose sum is minimised."""
        ...

    def metric(self) -> Any:
        """An empty `Metric`."""
        ...

    def score(self, model: Any, batch: Any, metric: Any) -> None:
        """Predict a batch and add it to the metric."""
        ...

    def details(self, metric: Any) -> Mapping[str, Any]:
        """More than the scores, for the log; `by_class`, each class's score, is also kept with the best model."""
        ...

    def summarize(self, metric: Any, title: str) -> Scores:
        """Return what an evaluation found, ready to be printed and written."""
        ...

    def names(self, batch: Any) -> Sequence[str]:
        """The files of a batch."""
        ...
