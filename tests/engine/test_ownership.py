import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dnlnet.engine.ownership import lock_run_folder
from observer import Recorder

OWNER = """
import sys
from pathlib import Path
from dnlnet.engine.ownership import lock_run_folder
with lock_run_folder(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_learns_who_owns_the_folder_and_gets_it_after_the_owner_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    owner.stdout.readline()
    who = rf"process {owner.pid} on \S+ since \d{{4}}-.*"
    with pytest.raises(OSError, match=rf"run: in use by {who}; wait until that run ends"), lock_run_folder(folder):
        pytest.fail("two owners")
    assert json.loads((folder / "run.lock").read_text())["pid"] == owner.pid
    owner.kill()
    owner.communicate()
    leftover = folder / "checkpoints" / ".writing-0123456789abcdef-0"
    (leftover / "content").mkdir(parents=True)
    (leftover / "content" / "000010.safetensors").write_bytes(bytes(100))
    observed = Recorder()
    with lock_run_folder(folder, observed):
        assert not leftover.exists()
        assert json.loads((folder / "run.lock").read_text())["pid"] == os.getpid()
    assert len(observed.said) == 1
    assert re.search(f"taken over from {who}, which died without releasing it", observed.said[0])
    assert [path.name for path in folder.iterdir()] == ["checkpoints"]


def test_files_a_killed_run_was_writing_are_removed_in_every_folder(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "checkpoints", tmp_path / "tensorboard"):
        (place / ".writing-0123456789abcdef-0" / "content").mkdir(parents=True)
    with lock_run_folder(tmp_path):
        assert not list(tmp_path.rglob(".writing-*"))


def test_empty_folders_are_removed_and_others_are_not(tmp_path: Path) -> None:
    with pytest.raises(KeyError), lock_run_folder(tmp_path / "runs" / "a"):
        raise KeyError("failed start")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "mine").mkdir()
    with lock_run_folder(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").exists()


def test_without_file_locks_a_run_continues_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    observed = Recorder()
    with lock_run_folder(tmp_path, observed):
        pass
    assert "cannot be locked" in observed.said[0]
    assert list(tmp_path.iterdir()) == []
