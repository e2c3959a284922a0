"""Processes that start at once: they are forked from a server that has imported the package."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "torch.distributed.run",
        "dnlnet.cli.main",
        "dnlnet.engine.train",
        "dnlnet.runs.feasible",
        "dnlnet.runs.report",
        "dnlnet.runs.train",
        "dnlnet.segmentation.network",
        "dnlnet.segmentation.task",
        "tensorboard.summary.writer.record_writer",
    ]
)
event = PROCESSES.Event


def begin(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """Start a process that calls an importable function."""
    process = PROCESSES.Process(target=work, args=arguments)
    process.start()
    return process


def execute(code: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Execute code as `python -c` does, with its output in a file."""
    import torch

    torch.set_num_threads(1)
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = ["dnlnet", *arguments]
    exec(code, {})


def torchrun(
    options: Sequence[str],
    code: str,
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    before: str = "",
) -> None:
    """Execute code in several processes as `torchrun` does, which would import the package in each of them.

    Args:
        options: Options of torchrun.
        code: Code of each process.
        arguments: Arguments of each process.
        log: File for the output of all processes.
        environment: Variables for all processes.
        before: Code for the agent, before it starts the processes.
    """
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    execute(before, arguments, log, environment)
    config, _, _ = config_from_args(parse_args([*options, "code"]))
    config.start_method = "fork"
    elastic_launch(config, execute)(code, arguments, log, environment)
