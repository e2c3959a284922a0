import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from dnlnet.cli import main as cli
from foreign import SMALL, filled, mmseg_shapes, use_small_backbones


def dnlnet(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_converted_checkpoint_is_a_model_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_backbones(monkeypatch)
    file, model = tmp_path / "dnl_r50-d8_769x769_80k_cityscapes.pth", tmp_path / "dnl.safetensors"
    state = filled(mmseg_shapes(SMALL, "dnl_block"))
    meta = {"CLASSES": ("\x1b[31mroad\n", "b", "c", "d", "e")}
    torch.save({"state_dict": {**state, "strange": torch.ones(1)}, "meta": meta}, file)
    with pytest.raises(ValueError, match="strange"):
        dnlnet("convert", file, "-o", model)
    shown = dnlnet(
        *("convert", file, "-o", model, "--partial", "--set", "evaluation.window=null"),
        *("--set", "evaluation.stride=null", "--json", tmp_path / "a.json"),
    )
    assert f"{file}: mmsegmentation\n" in shown
    assert (
        "a network for segmentation: small_resnet50c with dnl (preset mmseg), 5 classes (\\x1b[31mroad\\n, b, c"
        in shown
    )
    assert "note: align_corners is True, as in their models for crops of 769 x 769" in shown
    assert "unused: strange" in shown
    assert f"{len(state)} tensors written: {model}" in shown
    written = json.loads((tmp_path / "a.json").read_text())
    assert (written["family"], written["tensors"], written["unused"]) == ("mmsegmentation", len(state), ["strange"])
    assert written["recipe"]["model"]["align_corners"] is True

    assert "name: mmseg-folder-small_resnet50c-dnl" in dnlnet("info", model)
    Image.new("RGB", (40, 30), "green").save(tmp_path / "a.png")
    dnlnet("predict", model, tmp_path / "a.png", "-o", tmp_path / "predicted")
    assert list((tmp_path / "predicted").rglob("*.png"))
