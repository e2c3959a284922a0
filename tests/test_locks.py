import os
from pathlib import Path

import pytest

from dnlnet.locks import acquire_lock, release_lock
from processes import start


def test_a_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = acquire_lock(path)
    with pytest.raises(BlockingIOError):
        acquire_lock(path)
    release_lock(lock)
    assert not path.exists()
    release_lock(acquire_lock(path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork not found: Windows starts processes anew")
def test_a_lock_ends_with_its_owner_even_if_its_children_live(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from dnlnet.locks import acquire_lock
lock = acquire_lock(Path(sys.argv[1]))
ready, go = os.pipe()
if os.fork():
    os.read(ready, 1)
    print("ready", flush=True)
    sys.stdin.read()
os.write(go, b"x")
sys.stdin.read()
"""
    path = tmp_path / "lock"
    owner = start(code, path)
    with pytest.raises(BlockingIOError):
        acquire_lock(path)
    owner.kill()
    owner.wait()
    release_lock(acquire_lock(path))  # the child still runs, but does not hold the lock
    owner.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork not found: Windows starts processes anew")
def test_a_forked_process_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = acquire_lock(tmp_path / "lock")
    child = os.fork()
    if child == 0:
        release_lock(lock)
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BlockingIOError):
        acquire_lock(tmp_path / "lock")
    release_lock(lock)
    assert not (tmp_path / "lock").exists()
