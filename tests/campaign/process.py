"""Runs of the command in a child process that may be killed, crash or hang."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

Item = TypeVar("Item")

TIMEOUT = 60.0  # seconds until a try counts as hung


@dataclass(frozen=True)
class Outcome:
    """End of a process: exit code (or minus the signal number), output, and whether it hung."""

    code: int
    output: str
    hung: bool = False


def import_everything() -> None:
    """Import what every try needs in the parent, with one thread because forks do not inherit threads."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import av  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pycocotools.mask  # noqa: F401
    import tensorboard.summary.writer.event_file_writer  # noqa: F401
    import timm  # noqa: F401
    import torch
    import torch.utils.tensorboard
    import torchvision  # noqa: F401

    import dnlnet.cli.main  # noqa: F401

    torch.set_num_threads(1)


def run(
    arguments: Sequence[object],
    folder: Path,
    *,
    kill_after: float | None = None,
    number: signal.Signals = signal.SIGKILL,
    timeout: float = TIMEOUT,
) -> Outcome:
    """Run `dnlnet` in a folder, and send it a signal if it still runs after `kill_after` seconds."""
    printed = folder / ".printed"
    child = os.fork()
    if child == 0:
        _become([str(argument) for argument in arguments], folder, printed)
    deadline = time.monotonic() + (timeout if kill_after is None else kill_after)
    hung = False
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            # Kill one process, as the kernel does without memory; kill a hung one with its data workers.
            if kill_after is None:
                hung = True
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, number)
            kill_after, deadline = None, time.monotonic() + timeout
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status[1])
    output = printed.read_text(errors="replace") if printed.exists() else ""
    printed.unlink(missing_ok=True)
    return Outcome(code, output, hung)


def _become(arguments: list[str], folder: Path, printed: Path) -> NoReturn:
    """Run the command in the child, like its entry point."""
    os.setsid()
    os.chdir(folder)
    tempfile.tempdir = None  # reread the environment
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.argv = ["dnlnet", *arguments]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    code = 0
    try:
        from dnlnet.cli.main import main

        main()
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as the interpreter does
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def side_by_side(work: Callable[[Item], None], items: Sequence[Item], processes: int = 2) -> None:
    """Distribute items over forked processes."""
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for item in items[number::processes]:
                    work(item)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
        raise RuntimeError("a process of the campaign itself failed; see above")
