import json
import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from dnlnet.artifacts.model_file import find_model, read_model_file
from dnlnet.backbones import Backbone
from dnlnet.cli.main import app
from dnlnet.runs.export import export

STORED = Path(__file__).parents[2] / "artifacts" / "stored" / "model.safetensors"


def info(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["info", *map(str, arguments)], env={"COLUMNS": "120"})


def described(*arguments: object) -> dict:
    done = info(*arguments)
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.output)


def test_a_model_is_described_and_written_as_json(run: Path, tmp_path: Path) -> None:
    assert info(run, "--json", tmp_path / "a.json").exit_code == 0
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["kind"] == "a segmentation model of dnlnet"
    assert content["recipe"]["name"] == "scenes-tiny-dnl"
    assert content["iteration"] == 20
    assert set(content["scores"]) == {"miou", "accuracy"}


def test_the_state_of_a_run_follows_from_its_models(run: Path) -> None:
    state = next((run / "checkpoints").glob("*.safetensors"))
    assert described(state)["kind"].startswith("the state of a run after 20 iterations")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "ending", "kind"), [("onnx", ".onnx", "ONNX"), ("torch", ".pt2", "PyTorch program")]
)
def test_exported_files_describe_inputs_and_outputs(
    run: Path, tmp_path: Path, form: str, ending: str, kind: str
) -> None:
    path = tmp_path / f"model{ending}"
    export(read_model_file(find_model(str(run))), path, form, size=(32, 32))
    content = described(path)
    assert kind in content["kind"]
    assert [int(length) for length in next(iter(_listed(content["inputs"])))[1:]] == [1, 3, 32, 32]
    assert list(content["outputs"]) == ["logits"]
    assert content["recipe"]["name"] == "scenes-tiny-dnl"
    assert content["classes"][0] == "sky"


def _listed(values: dict | list) -> list:
    return list(values.values()) if isinstance(values, dict) else values


def test_weights_of_a_backbone_are_recognised(tmp_path: Path) -> None:
    state = Backbone("resnet18").body.state_dict()
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}, tmp_path / "a.pth")
    save_file(state, tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        content = described(tmp_path / name)
        assert content["kind"] == "weights of resnet18, for model.weights"
        assert content["tensors"] == len(state)


def test_a_foreign_checkpoint_is_described_with_the_result_of_convert(tmp_path: Path) -> None:
    torch.save({"s1.pathway0_stem.conv.weight": torch.ones(8, 3, 1, 7, 7)}, tmp_path / "a.pth")
    content = described(tmp_path / "a.pth")
    assert content["kind"] == "a checkpoint of slowfast"
    assert ": " in content["dnlnet convert"]  # the reason why it cannot be converted


def test_unknown_and_damaged_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    torch.save({"strange": torch.ones(2)}, tmp_path / "a.pth")
    assert described(tmp_path / "a.pth")["kind"] == "weights of an unknown network"
    for ending, expected in (
        (".onnx", "ONNX"),
        (".pt2", "PyTorch program"),
        (".safetensors", "safetensors"),
        (".pth", ""),
    ):
        path = tmp_path / f"b{ending}"
        path.write_bytes(b"nothing of the kind")
        error = info(path).exception
        assert isinstance(error, ValueError)
        assert re.match(rf"{path}: .*{expected}", str(error)), ending


class _Trap:
    """Object that creates a folder when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.made),)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PyTorch program with free batch size, exported by `dnlnet export`."""
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    export(read_model_file(STORED), path, "torch", size=(32, 32), free=("batch",))
    return path


def _changed(program: Path, path: Path, change: dict[str, bytes], compression: int = ZIP_STORED) -> Path:
    """Copy an archive, replacing the parts whose names end with these suffixes."""
    with ZipFile(program) as old, ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            ending = next((ending for ending in change if name.endswith(ending)), None)
            new.writestr(name, old.read(name) if ending is None else change[ending])
    return path


@pytest.mark.filterwarnings("ignore")
def test_code_in_a_program_does_not_run(program: Path, tmp_path: Path) -> None:
    """Replace the example inputs by a pickle, and a free length by an expression."""
    pickled, evaluated = tmp_path / "pickled", tmp_path / "evaluated"
    buffer = BytesIO()
    torch.save(((_Trap(pickled),), {}), buffer)
    with ZipFile(program) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        graph = archive.read(name).decode()
    expression = json.dumps(f"__import__('os').mkdir({str(evaluated)!r})")[1:-1]
    poisoned = re.sub(r"Symbol\('s\d+', positive=True, integer=True\)", lambda _: expression, graph)
    assert poisoned != graph
    path = _changed(
        program,
        tmp_path / "trap.pt2",
        {"sample_inputs/model.pt": buffer.getvalue(), "models/model.json": poisoned.encode()},
    )
    content = described(path)
    assert content["inputs"] == [["torch.float32", "free", "3", "32", "32"]]
    assert content["recipe"]["name"] == "scenes-tiny-dnl"
    assert not pickled.exists()
    assert not evaluated.exists()


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2), "beside": _Trap(tmp_path / "pickled")}, tmp_path / "trap.pth")
    info(tmp_path / "trap.pth")
    assert not (tmp_path / "pickled").exists()


def test_free_lengths_of_a_program_are_named(program: Path) -> None:
    (lengths,) = described(program)["inputs"]
    assert re.fullmatch(r"s\d+", lengths[1])


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"models/model.json": b"nothing"}, "JSON"),
        ({"models/model.json": b"[" * 100_000}, "nested"),
        ({"models/model.json": b"[]"}, "PyTorch program"),
        ({"models/model.json": b'{"graph_module": null}'}, "PyTorch program"),
        ({"models/model.json": b"\xff"}, "PyTorch program"),
        ({"extra/recipe": b"{}"}, "recipe.* name: "),
        ({"extra/classes": b"[]"}, r"classes=\[\]: .*mapping"),
    ],
)
def test_a_damaged_program_is_refused_with_a_reason(
    program: Path, tmp_path: Path, change: dict[str, bytes], fact: str
) -> None:
    path = _changed(program, tmp_path / "a.pt2", change)
    error = info(path).exception
    assert isinstance(error, ValueError)
    assert re.match(f"{path}: .*{fact}", str(error))


def test_a_program_that_unpacks_to_far_more_than_its_size_is_refused(program: Path, tmp_path: Path) -> None:
    path = _changed(program, tmp_path / "a.pt2", {"models/model.json": b" " * 10_000_000}, ZIP_DEFLATED)
    assert re.match(f"{path}: .*10,", str(info(path).exception))


def test_an_onnx_file_does_not_open_the_files_it_names(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../etc/passwd")
    graph = onnx.helper.make_graph([], "g", [value], [value], [weight])
    (tmp_path / "a.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    content = described(tmp_path / "a.onnx")
    assert content["inputs"] == {"x": ["tensor(float)", "batch", 3]}
    assert content["written by"] == "another program than dnlnet export"


def test_a_model_file_with_weights_of_another_network_is_described_with_its_problem(tmp_path: Path) -> None:
    with safe_open(STORED, "pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state.pop("block.saliency.bias")
    save_file(state, tmp_path / "a.safetensors", metadata)
    assert "missing block.saliency.bias" in described(tmp_path / "a.safetensors", "--check")["problem"]
