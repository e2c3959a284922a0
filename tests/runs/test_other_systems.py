"""The package works without what only some systems have, such as macOS and Windows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trees import write_image

# Python imports this file when it starts, also in the processes that the commands start.
HIDE = """
import builtins, io, multiprocessing, os, signal, sys

def without(function):
    def open_other(path, *arguments, **options):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(("/proc", "/sys", "/dev/fd")):
            raise FileNotFoundError(2, "hidden", os.fsdecode(path))
        return function(path, *arguments, **options)
    return open_other

calls = "sched_getaffinity sysconf fork forkpty killpg getpgid setsid getuid geteuid mkfifo posix_fadvise sendfile"
for name in calls.split():
    delattr(os, name)
for name in "SIGHUP SIGKILL SIGALRM SIGUSR1 SIGUSR2 SIGPIPE pthread_sigmask alarm setitimer".split():
    delattr(signal, name)
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for module, names in ((builtins, ["open"]), (io, ["open"]), (os, ["open", "stat", "lstat", "listdir", "scandir"])):
    for name in names:
        setattr(module, name, without(getattr(module, name)))
if multiprocessing.get_start_method(allow_none=True) is None:
    multiprocessing.set_start_method("spawn")
"""
WORK = """
import json, os, sys
from pathlib import Path
from dnlnet.cli.main import app

assert not hasattr(os, "sched_getaffinity") and not Path("/proc/meminfo").exists()
for arguments in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
"""
SHORT = ["data.crop=[32, 32]", "schedule.iterations=2", "schedule.batch=2", "training.evaluate_every=2"]


@pytest.mark.skipif(sys.platform != "linux", reason="hides what Linux has")
def test_commands_need_nothing_that_only_linux_has(tmp_path: Path) -> None:
    write_image(tmp_path / "a.jpg", size=(40, 56))
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE)
    settings = [part for setting in SHORT for part in ("--set", setting)]
    small = ["--variants", "dnl", "--sizes", "8x8", "--channels", "4", "--rounds", "1", "--threads", "1"]
    commands = [
        ["train", "scenes-tiny-dnl", "--out", "run", "--workers", "1", *settings],
        ["predict", "run", "a.jpg"],
        ["study", "scenes-tiny-dnl", "--seeds", "2", "--out", "study", *settings],
        ["bench", "block", *small, "--json", "bench.json"],
    ]
    paths = [str(tmp_path / "hide"), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", WORK, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "predicted" / "labels" / "a.png").is_file()
    assert len(list((tmp_path / "study" / "results").iterdir())) == 2
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {row["fused_bytes"] for row in rows} == {None}
