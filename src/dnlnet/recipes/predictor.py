"""What the package asks of the object that uses a trained network."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from dnlnet.data.classes import Classes
    from dnlnet.data.outputs import Outputs
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult


class Predictor(Protocol):
    """A trained network in use. Predictors of single tasks take further keyword arguments."""

    @property
    def network(self) -> "nn.Module":
        """Network in evaluation mode; only the first tensor of its output is used, as other runtimes give no more."""
        ...

    @property
    def classes(self) -> "Classes":
        """Classes that the outputs stand for."""
        ...

    def predict(self, source: Any) -> Any:
        """Return what the network finds in a file, URL or array."""
        ...

    def outputs(self) -> "Outputs":
        """Return the writer of files of predictions."""
        ...

    def attend(self, models: Mapping[str, Any], request: "AttendRequest") -> "AttendResult":
        """Show what models, of which this is one, attend to, by title."""
        ...
