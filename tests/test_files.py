import errno
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import dnlnet
from dnlnet.files import (
    NotWrittenError,
    atomic_write,
    explain_write_errors,
    json_text,
    make_folder,
    write_json,
)
from dnlnet.locks import remove_leftovers
from processes import kill, start

WRITER = """
import sys
from pathlib import Path
from dnlnet.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of it")
    print("ready", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_honour_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "weights") as temporary:
            temporary.write_text("x")
            temporary.chmod(0o600)  # like safetensors
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == mode


def test_an_error_leaves_only_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    def write_half() -> None:
        with atomic_write(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
            (temporary.parent / "a.txt.data").write_text("beside it")
            (temporary.parent / "folder").mkdir()
            raise KeyError("x")

    with pytest.raises(KeyError):
        write_half()
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("name", ["x" * 251 + ".png", "ü" * 125 + ".png"])
def test_a_name_may_have_the_maximum_length_of_the_file_system(name: str, tmp_path: Path) -> None:
    with atomic_write(tmp_path / name) as temporary:
        temporary.write_text("x")
    assert names(tmp_path) == [name]


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        kill(start(WRITER, tmp_path / "a.txt"))
    assert len(names(tmp_path)) == 1  # the second writer took over the folder of the first
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == ["a.txt"]


def test_leftovers_of_writers_killed_together_are_removed_by_the_next(tmp_path: Path) -> None:
    writers = [start(WRITER, tmp_path / "a.txt") for _ in range(3)]
    for writer in writers:
        kill(writer)
    assert len(names(tmp_path)) == 3
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == ["a.txt"]


def test_leftovers_are_removed_and_files_of_a_live_writer_stay(tmp_path: Path) -> None:
    writer = start(WRITER, tmp_path / "live.txt")
    kill(start(WRITER, tmp_path / "dead.txt"))
    (tmp_path / ".writing-notes").mkdir()
    assert len(names(tmp_path)) == 3
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 2
    writer.communicate("")
    assert names(tmp_path) == [".writing-notes", "live.txt"]
    assert (tmp_path / "live.txt").read_text() == "half of it"


def test_two_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    writer = start(WRITER, tmp_path / "a.txt")
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("mine")
    assert (tmp_path / "a.txt").read_text() == "mine"
    writer.communicate("")
    assert names(tmp_path) == ["a.txt"]


def test_a_file_system_without_locks_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with atomic_write(tmp_path / "a.txt") as first, atomic_write(tmp_path / "a.txt") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a.txt").read_text() == "first"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "ENOSPC"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "ENOSPC"),
        (RuntimeError("PytorchStreamWriter: No space left on device"), "ENOSPC"),
        (RuntimeError("I/O error: File too large (os error 27)"), "EFBIG"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "EDQUOT"),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_keeps_its_code(error: Exception, code: str, tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "a.bin"):
            raise error

    with pytest.raises(NotWrittenError) as raised:
        write()
    assert str(raised.value).startswith(f"{tmp_path / 'a.bin'}: ")
    assert str(raised.value.strerror) in str(raised.value)
    assert errno.errorcode[raised.value.errno or 0] == code
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # as when sent between processes
    assert names(tmp_path) == []


def test_other_errors_are_not_changed(tmp_path: Path) -> None:
    for error in (OSError("image file is truncated"), ValueError("no"), FileNotFoundError(2, "no such file", "b")):
        with pytest.raises(type(error)) as raised, explain_write_errors(tmp_path / "a"):
            raise error
        assert raised.value is error


def test_json_contains_no_nan() -> None:
    text = json_text({"a": [float("inf"), -float("inf"), (1.5, float("nan"))], "b": {"c": float("nan"), "d": "nan"}})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [None, None, [1.5, None]],
        "b": {"c": None, "d": "nan"},
    }


def _link(path: Path) -> None:
    path.symlink_to("nowhere")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (_link, "link to nowhere"),
        (_loop, "link to out"),
        (Path.touch, "file"),
    ],
)
@pytest.mark.parametrize("inner", [".", "run", "run/deep"])
def test_an_obstacle_at_the_path_of_a_folder_is_named(
    make: Callable[[Path], None], what: str, inner: str, tmp_path: Path
) -> None:
    make(tmp_path / "out")
    for write in (make_folder, lambda folder: write_json(folder / "a.json", {})):
        with pytest.raises(FileExistsError, match=rf"^{tmp_path}/out: .*\b{what}\b"):
            write(tmp_path / "out" / inner)
    assert names(tmp_path) == ["out"]


def test_folders_are_created_by_one_function() -> None:
    source = Path(dnlnet.__file__).parent
    found = [path.name for path in source.rglob("*.py") if re.search(r"exist_ok|makedirs", path.read_text("utf-8"))]
    assert found == ["files.py"]
