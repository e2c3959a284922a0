"""The progress bars of the commands."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def main_process_console() -> "Console":
    """The terminal's error stream; silent in all processes of `torchrun` but the main one."""
    from rich.console import Console

    return Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")


def measuring_progress() -> "Progress":
    """What was measured last, how many of how many, and the time so far: how long the next takes is not known."""
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from dnlnet.cli.terminal.bars import LateProgress

    columns = TextColumn("{task.description}", markup=False), MofNCompleteColumn(), TimeElapsedColumn()
    return LateProgress(*columns, console=main_process_console())


def counting_progress() -> "Progress":
    """A bar with how many of how many are done, and the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from dnlnet.cli.terminal.bars import LateProgress

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return LateProgress(*columns, console=main_process_console())
