"""Processes that tests start and kill."""

import subprocess
import sys
from pathlib import Path


def start(code: str, path: Path) -> "subprocess.Popen[str]":
    """Start a process and wait until it prints a line."""
    command = [sys.executable, "-c", code, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()
