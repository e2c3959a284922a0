"""Context that a run passes to the functions it calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dnlnet.progress import SILENT, Progress

if TYPE_CHECKING:
    import torch

Made = TypeVar("Made")


@dataclass(frozen=True)
class RunContext:
    """Folders, seed, device and observer of a run.

    Args:
        data: Folder of the data set. Generated data needs none.
        seed: Random seed.
        device: Device that computes.
        cache: Folder for features of a frozen backbone. Default: compute them each time.
        unpacked: Folder for decoded images. Default: decode them each time.
        progress: Observer of long work.
    """

    data: Path | None = None
    seed: int = 0
    device: "torch.device | str" = "cpu"
    cache: Path | None = None
    unpacked: Path | None = None
    progress: Progress = SILENT
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, which is called only the first time that the run needs this name.

        >>> run = RunContext()
        >>> run.once("parts", list) is run.once("parts", list)
        True
        """
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made
