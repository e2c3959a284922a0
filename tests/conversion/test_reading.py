"""Files with more than tensors: plain values are read, nothing is executed, and the rest is skipped with a note."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.conversion import reading
from dnlnet.conversion.converting import convert, read
from dnlnet.conversion.reading import describe_left_out, read_checkpoint
from foreign import SMALL, filled, mmseg_shapes

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])
TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "b.bias": torch.ones(2, dtype=torch.float16)}


def saved(path: Path, content: object, zipped: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def sentence(path: Path) -> str | None:
    """Return why a file is refused, or None."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture
def history_buffer(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Return a class like mmengine's, whose objects store their own methods and NumPy arrays."""

    class HistoryBuffer:
        def __init__(self, values: list[float]) -> None:
            self._log_history, self._count_history = np.array(values), np.ones(len(values), dtype=np.int64)
            self._statistics_methods = {"min": HistoryBuffer.min, "max": HistoryBuffer.max}
            self.last = np.float64(values[-1])

        def min(self) -> float:
            return float(self._log_history.min())

        def max(self) -> float:
            return float(self._log_history.max())

        def __setstate__(self, state: object) -> None:
            raise AssertionError("the file's own code ran")

    module = ModuleType("mmengine.logging.history_buffer")
    for found, name in ((HistoryBuffer, "HistoryBuffer"), (HistoryBuffer.min, "min"), (HistoryBuffer.max, "max")):
        found.__module__ = module.__name__
        found.__qualname__ = name if name == "HistoryBuffer" else f"HistoryBuffer.{name}"
    module.HistoryBuffer = HistoryBuffer  # type: ignore[attr-defined]
    for name in ("mmengine", "mmengine.logging"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return HistoryBuffer


@FORMATS
def test_a_checkpoint_of_mmengine_keeps_its_configuration(
    zipped: bool, history_buffer: type[Any], tmp_path: Path
) -> None:
    content = {
        "meta": {
            "cfg": "model = dict(decode_head=dict(align_corners=True, temperature=0.1, type='DNLHead'), "
            "backbone=dict(strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4), contract_dilation=True))",
            "dataset_meta": {"classes": ("a", "b", "c", "d", "e"), "palette": [[1, 2, 3]] * 5},
            "iter": np.int64(7),
            "seed": 3,
        },
        "state_dict": filled(mmseg_shapes(SMALL, "dnl_block")),
        "message_hub": {"log_scalars": {"train/loss": history_buffer([3.0, 2.0])}, "runtime_info": {"iter": 7}},
        "optimizer": {"state": {}},
    }
    path = saved(tmp_path / "iter_7.pth", content, zipped)
    assert b"getattr" in path.read_bytes()
    result = convert(path, tmp_path / "m.safetensors")
    assert result.recipe.model.block == {"temperature": 0.1}
    assert read_model_file(tmp_path / "m.safetensors").classes.names == ("a", "b", "c", "d", "e")
    said = next(note for note in result.notes if note.startswith("left out"))
    assert said.startswith("left out: the state of the optimiser, the log, objects of other programs (")
    assert "mmengine.logging.history_buffer.HistoryBuffer" in said
    assert "numpy" in said


class Made:
    """Object that unpickles to the call of any function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __call__(self) -> None:
        """Allow calls of its result."""

    def __reduce__(self) -> Any:
        return self.call


class Restored:
    """Object that writes a file when its state is restored."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __setstate__(self, state: dict[str, str]) -> None:
        os.mkdir(state["mark"])


def traps(mark: Path) -> dict[str, object]:
    """Return objects that write a file when they are created."""
    code = f"__import__('os').mkdir({str(mark)!r})"
    return {
        "eval": Made(eval, code),
        "exec": Made(exec, code),
        "getattr": Made(getattr, Made(eval, code), "name"),
        "subprocess": Made(subprocess.call, ["touch", str(mark)]),
        "numpy": Made(np.savetxt, str(mark), np.ones(1)),
        "torch": Made(torch.save, 1, str(mark)),
        "its own class": Restored(mark),
    }


def blocked_traps(mark: Path) -> dict[str, object]:
    """Return objects that do so through the system, or through an object that the file itself created."""
    return {
        "os.system": Made(os.system, f"touch {mark}"),
        "os.mkdir": Made(os.mkdir, str(mark)),
        "a method": Made(Made(getattr, Made(Path, str(mark)), "mkdir")),
        "a function": Made(Made(getattr, np.ndarray, "tofile"), np.ones(1), str(mark)),
        "an import": Made(Made(getattr, Made(__import__, "os"), "mkdir"), str(mark)),
    }


@FORMATS
@pytest.mark.parametrize("kind", traps(Path("mark")))
def test_code_in_a_file_never_runs(kind: str, zipped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    content = {"state_dict": TENSORS, "meta": {"seed": 3, "trap": traps(mark)[kind], "all": [traps(mark)[kind], 4]}}
    checkpoint = read_checkpoint(saved(tmp_path / "a.pth", content, zipped))
    assert not mark.exists()
    torch.testing.assert_close(dict(checkpoint.state), TENSORS)
    assert checkpoint.meta == {"seed": 3, "all": [None, 4]}
    assert describe_left_out(checkpoint)[0].startswith("objects of other programs (")


@FORMATS
@pytest.mark.parametrize("kind", blocked_traps(Path("mark")))
def test_a_file_that_needs_to_run_code_is_refused(kind: str, zipped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    saved(tmp_path / "a.pth", {"state_dict": TENSORS, "meta": blocked_traps(mark)[kind]}, zipped)
    with pytest.raises(
        ValueError, match=r"cannot be read without running code( \((posix|nt)\.\w+\))?; save its state"
    ):
        read_checkpoint(tmp_path / "a.pth")
    assert not mark.exists()


def test_self_containing_values_are_skipped(tmp_path: Path) -> None:
    inside: list[object] = [1]
    inside.append(inside)
    path = saved(tmp_path / "a.pth", {"state_dict": TENSORS, "inside": inside, "name": "kept"})
    assert read_checkpoint(path).meta == {"inside": [1, None], "name": "kept"}


def test_endlessly_nested_values_are_refused(tmp_path: Path) -> None:
    wide: list[object] = []
    for _ in range(50):  # 2^50 values, if every reference were followed
        wide = [wide, wide]
    path = saved(tmp_path / "a.pth", {"state_dict": TENSORS, "meta": {"CLASSES": wide}})
    assert "holds more than 1,000,000 values" in (sentence(path) or "")


def test_a_file_that_names_too_many_classes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of the reader would search all of them."""
    path = saved(tmp_path / "a.pth", {"state_dict": TENSORS, "trap": traps(tmp_path / "mark")["eval"]})
    assert sentence(path) is None
    monkeypatch.setattr(reading, "_MOST_NAMES", 3)
    assert "cannot be read without running code (eval)" in (sentence(path) or "")


def test_a_torchscript_program_is_refused_with_one_sentence(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt: is a TorchScript program; save the state dict"):
        read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize("protocol", [0, 3, 4, 5])
def test_a_file_of_another_protocol_is_read_or_refused_without_a_warning(protocol: int, tmp_path: Path) -> None:
    torch.save({"state_dict": TENSORS}, tmp_path / "a.pth", pickle_protocol=protocol)
    assert (sentence(tmp_path / "a.pth") or "save its state dict alone").endswith("save its state dict alone")


@FORMATS
def test_damaged_bytes_give_one_sentence(zipped: bool, history_buffer: type[Any], tmp_path: Path) -> None:
    content = {"meta": {"cfg": "a = 1", "log": history_buffer([1.0])}, "state_dict": TENSORS}
    whole = saved(tmp_path / "a.pth", content, zipped).read_bytes()
    rng = np.random.default_rng(0)
    sentences = 0
    for number in range(300):
        damaged = bytearray(whole[: rng.integers(len(whole))] if number % 3 == 0 else whole)
        for place in rng.integers(len(damaged), size=3) if number % 3 and damaged else ():
            damaged[place] = rng.integers(256)
        (tmp_path / "b.pth").write_bytes(damaged)
        said = sentence(tmp_path / "b.pth")
        assert said is None or ("b.pth: " in said and "\n" not in said)
        sentences += said is not None
    assert sentences > 100
