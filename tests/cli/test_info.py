import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from dnlnet.backbones import Backbone
from dnlnet.cli.main import app
from dnlnet.export.model import export_model
from dnlnet.recipes.model_file import find_model, read_model_file


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


def test_the_state_of_a_run_is_told_from_its_models(run: Path) -> None:
    state = next((run / "checkpoints").glob("*.safetensors"))
    assert described(state)["kind"] == "the state of a run after 20 iterations; its models lie a folder above"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "ending", "kind"), [("onnx", ".onnx", "ONNX"), ("torch", ".pt2", "PyTorch program")]
)
def test_exported_files_tell_what_goes_in_and_out(
    run: Path, tmp_path: Path, form: str, ending: str, kind: str
) -> None:
    path = tmp_path / f"model{ending}"
    export_model(read_model_file(find_model(str(run))), path, form, size=(32, 32))
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


def test_a_foreign_checkpoint_is_named_with_what_convert_makes_of_it(tmp_path: Path) -> None:
    torch.save({"s1.pathway0_stem.conv.weight": torch.ones(8, 3, 1, 7, 7)}, tmp_path / "a.pth")
    content = described(tmp_path / "a.pth")
    assert content["kind"] == "a checkpoint of slowfast"
    assert content["dnlnet convert"].startswith("does not take it: ")


def test_strange_and_damaged_files_are_refused_in_words(tmp_path: Path) -> None:
    torch.save({"strange": torch.ones(2)}, tmp_path / "a.pth")
    assert described(tmp_path / "a.pth")["kind"] == "weights of an unknown network"
    for ending, message in (
        (".onnx", "is not an ONNX file"),
        (".pt2", "is not a PyTorch program"),
        (".safetensors", "is not a safetensors file"),
        (".pth", "is damaged"),
    ):
        path = tmp_path / f"b{ending}"
        path.write_bytes(b"nothing of the kind")
        assert message in str(info(path).exception), ending
