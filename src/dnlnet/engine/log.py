"""What a run says while it goes on: one JSON line for each event, and the same numbers for TensorBoard."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from dnlnet.files import written_whole


class RunLog:
    """`log.jsonl` and TensorBoard's event files in the run's folder.

    Args:
        folder: of the run.
        after: the iteration that the run goes on from; lines of later ones, which a killed run has left, are removed.
        tensorboard: also write event files.
        quiet: write nothing at all, as all processes but one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, RunLog(Path(folder), tensorboard=False) as log:
    ...     log.write("train", 1, {"loss": 0.5})
    ...     list(read_log(Path(folder)))
    [{'event': 'train', 'iteration': 1, 'loss': 0.5}]
    """

    def __init__(self, folder: Path, after: int = 0, *, tensorboard: bool = True, quiet: bool = False) -> None:
        self._file: TextIO | None = None
        self._board: Any = None
        if quiet:
            return
        path = folder / "log.jsonl"
        kept = [line for line in read_log(folder) if line["iteration"] <= after]
        with written_whole(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", buffering=1)  # a line is in the file once it is complete
        if tensorboard:
            self._board = _summary_writer(folder / "tensorboard", after)

    def write(self, event: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Add one line; numbers also go to TensorBoard under `event/name`."""
        if self._file is not None:
            self._file.write(json.dumps({"event": event, "iteration": iteration, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{event}/{name}", value, iteration)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        for open_file in (self._file, self._board):
            if open_file is not None:
                open_file.close()


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a run; a last line that was cut off is left out."""
    path = folder / "log.jsonl"
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def _summary_writer(folder: Path, after: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=after + 1)
