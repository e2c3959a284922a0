"""Protocol of the objects that use a trained network."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from dnlnet.data.classes import Classes
    from dnlnet.data.outputs import Outputs
    from dnlnet.lens.show.attend import AttendRequest, AttendResult


class Predictor(Protocol):
    """Trained network that predicts and shows its attention.

    The methods of each task's predictor may take further keyword arguments.
    """

    @property
    def network(self) -> "nn.Module":
        """Network in evaluation mode. Only the first tensor of its output is used; other runtimes return no more."""
        ...

    @property
    def classes(self) -> "Classes":
        """Classes of the outputs."""
        ...

    def predict(self, source: Any) -> Any:
        """Return the prediction for a file, URL or array."""
        ...

    def outputs(self) -> "Outputs":
        """Return the writer of prediction files."""
        ...

    def attend(self, models: Mapping[str, Any], request: "AttendRequest") -> "AttendResult":
        """Show the attention of models by title; this model is one of them."""
        ...
