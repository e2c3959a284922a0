import errno
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from dnlnet.engine import checkpoint as module
from dnlnet.engine.checkpoint import Checkpoint, Checkpoints, random_states, restore_random_states
from observer import Recorder


def made(iteration: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(iteration)
    tensors = {"w": torch.randn(40, 50, generator=generator).mT, "n": torch.tensor(iteration)}
    return Checkpoint(iteration, tensors, {"best": iteration / 7, "random": [1, None, "x"]})


@pytest.fixture
def three(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for iteration in (10, 20, 30):
        checkpoints.save(made(iteration))
    return checkpoints


def test_a_checkpoint_is_restored_to_the_bit(three: Checkpoints) -> None:
    back = three.latest()
    assert back is not None
    assert back.iteration == 30
    assert back.state == made(30).state
    assert torch.equal(back.tensors["w"], made(30).tensors["w"])
    assert torch.equal(back.tensors["n"], made(30).tensors["n"])


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for iteration in (5, 10, 1_000_000):
        checkpoints.save(made(iteration))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000010.json",
        "000010.safetensors",
        "1000000.json",
        "1000000.safetensors",
    ]
    assert checkpoints.latest().iteration == 1_000_000


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "json cut", "json other"])
def test_a_damaged_checkpoint_is_named_and_the_previous_one_is_used(three: Checkpoints, damage: str) -> None:
    tensors, state = three.folder / "000030.safetensors", three.folder / "000030.json"
    content = tensors.read_bytes()
    if damage == "cut":
        tensors.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        tensors.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "missing":
        tensors.unlink()
    elif damage == "json cut":
        state.write_text(state.read_text()[:50])
    else:
        state.write_text("[]")
    observed = Recorder()
    back = three.latest(observed)
    assert back is not None
    assert back.iteration == 20
    assert len(observed.said) == 1
    assert "000030: this checkpoint is damaged" in observed.said[0]


def test_no_flipped_bit_of_the_json_file_changes_the_result(three: Checkpoints) -> None:
    path = three.folder / "000030.json"
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (1, 4, 64):
            path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            observed = Recorder()
            back = three.latest(observed)
            assert back is not None
            assert back.iteration == (20 if observed.said else 30), (place, bit)
            assert back.state == made(back.iteration).state, (place, bit)


@pytest.mark.parametrize("checked", [True, False])
def test_an_iteration_that_contradicts_the_name_is_damage(three: Checkpoints, checked: bool) -> None:
    path = three.folder / "000030.json"
    content = json.loads(path.read_text()) | {"iteration": 9000}
    if not checked:  # the first versions wrote no checksum
        del content["checksum"]
    path.write_text(json.dumps(content))
    assert three.latest().iteration == 20


def test_checkpoints_of_the_first_versions_are_read(three: Checkpoints) -> None:
    """The first versions wrote no checksum of the JSON file."""
    path = three.folder / "000030.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({key: content[key] for key in ("iteration", "sha256", "state")}))
    observed = Recorder()
    back = three.latest(observed)
    assert observed.said == []
    assert back is not None
    assert (back.iteration, back.state) == (30, made(30).state)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_skipped_damaged_checkpoint_does_not_displace_an_intact_one(three: Checkpoints, keep: int) -> None:
    (three.folder / "000030.safetensors").write_bytes(b"")
    checkpoints = Checkpoints(three.folder, keep)
    assert checkpoints.latest().iteration == 20
    checkpoints.save(made(25))
    assert [path.stem for path in checkpoints.paths()] == ["000020", "000025"][-keep:]
    assert checkpoints.latest(observed := Recorder()).iteration == 25
    assert observed.said == []


def test_other_files_in_the_folder_are_not_checkpoints(three: Checkpoints) -> None:
    for name in ("2nd.json", "notes.json", "12.json"):
        (three.folder / name).write_text("{}")
    assert [path.stem for path in three.paths()] == ["000010", "000020", "000030"]


def test_without_an_intact_checkpoint_there_is_none(three: Checkpoints) -> None:
    for path in three.folder.glob("*.safetensors"):
        path.write_bytes(b"")
    observed = Recorder()
    assert three.latest(observed) is None
    assert len(observed.said) == 3


def test_a_full_disk_is_reported_and_keeps_the_earlier_checkpoints(
    three: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in three.folder.iterdir()}

    def full(_: object, path: Path, *__: object) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(OSError, match="the disk is full; the checkpoint of iteration 30 is intact; free"):
        three.save(made(40))
    assert {path: path.read_bytes() for path in three.folder.iterdir()} == before


def test_a_real_full_disk_is_detected(tmp_path: Path) -> None:
    """A file size limit acts like a full disk."""
    import resource
    import signal

    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(made(10))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=r"could not save iteration 20: .*iteration 10 is intact"):
            checkpoints.save(made(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000010.json", "000010.safetensors"]
    assert checkpoints.latest().iteration == 10


def test_random_generators_continue_their_sequence() -> None:
    cpu = torch.device("cpu")
    random.gauss(0, 1)
    np.random.normal()
    state, tensors = random_states(cpu)

    def numbers() -> list[float]:
        return [random.gauss(0, 1), random.random(), np.random.normal(), torch.rand(1).item()]

    expected = numbers()
    numbers()
    restore_random_states(state, tensors, cpu)
    assert numbers() == expected


def test_at_least_one_checkpoint_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 checkpoint must be kept, got 0"):
        Checkpoints(tmp_path, keep=0)
