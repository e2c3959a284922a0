from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from dnlnet.backbones import Backbone, load_weights, read_state_dict


@pytest.fixture(scope="module")
def mobilenet() -> Backbone:
    return Backbone("mobilenetv2", 32).eval()


def test_torchvisions_mobilenet_gives_the_same_features(mobilenet: Backbone, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.mobilenet_v2().eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    report = load_weights(mobilenet, tmp_path / "weights.pth")
    assert report.missing == report.unused == report.misshapen == ()
    assert "classifier.1.weight" in report.classifier
    x = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        torch.testing.assert_close(mobilenet(x)[-1], theirs.features[:18](x))


def test_torchvisions_resnet_gives_the_same_features(tmp_path: Path) -> None:
    theirs = torchvision.models.resnet18().eval()
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    ours = Backbone("resnet18", 32).eval()
    report = load_weights(ours, tmp_path / "weights.safetensors")
    assert report.classifier == ("fc.bias", "fc.weight")
    x = torch.rand(1, 3, 64, 64)
    expected = torch.nn.Sequential(*list(theirs.children())[:-2])(x)
    with torch.no_grad():
        torch.testing.assert_close(ours(x)[-1], expected)


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.backbone."])
@pytest.mark.parametrize("envelope", ["state_dict", "model", None])
def test_checkpoints_of_training_runs_are_unwrapped(prefix: str, envelope: str | None, tmp_path: Path) -> None:
    source, target = Backbone("resnet18"), Backbone("resnet18")
    state = {prefix + name: tensor.half() for name, tensor in source.body.state_dict().items()}
    torch.save({envelope: state, "epoch": 3} if envelope else state, tmp_path / "run.pth")
    assert load_weights(target, tmp_path / "run.pth").loaded == 120
    torch.testing.assert_close(target.body.conv1.weight, source.body.conv1.weight.half().float())


def test_weights_of_another_network_are_refused_and_nothing_changes(mobilenet: Backbone, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in mobilenet.state_dict().items()}
    torch.save(Backbone("resnet18").body.state_dict(), tmp_path / "resnet.pth")
    with pytest.raises(ValueError, match=r"resnet.pth: .*mobilenetv2"):
        load_weights(mobilenet, tmp_path / "resnet.pth")
    for name, tensor in mobilenet.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_mismatched_tensors_are_named(tmp_path: Path) -> None:
    backbone = Backbone("resnet18")
    state = backbone.body.state_dict()
    state["conv1.weight"] = torch.zeros(64, 1, 7, 7)
    del state["layer1.0.conv1.weight"]
    state["extra.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "odd.pth")
    with pytest.raises(
        ValueError, match=r"1 unused \(extra.weight\); 1 missing \(layer1.0.conv1.weight\); 1 misshapen"
    ):
        load_weights(backbone, tmp_path / "odd.pth")
    report = load_weights(backbone, tmp_path / "odd.pth", partial=True)
    assert report.misshapen == ("conv1.weight (64, 1, 7, 7) for (64, 3, 7, 7)",)
    assert report.loaded == 118


def test_files_that_are_not_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.pth: no such file"):
        read_state_dict(tmp_path / "nothing.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.pth: is not a weights file, or is damaged"):
        read_state_dict(tmp_path / "text.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0")
    with pytest.raises(ValueError, match=r"cut\.safetensors: is not a weights file, or is damaged"):
        read_state_dict(tmp_path / "cut.safetensors")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with pytest.raises(ValueError, match=r"empty\.pth: holds no tensors by name"):
        read_state_dict(tmp_path / "empty.pth")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "module.pth")
    with pytest.raises(ValueError, match="cannot be read without running code"):
        read_state_dict(tmp_path / "module.pth")
    whole = tmp_path / "whole.pth"
    torch.save(Backbone("resnet18").body.state_dict(), whole)
    for length in (100_000, 5000):
        (tmp_path / "cut.pth").write_bytes(whole.read_bytes()[:length])
        with pytest.raises(ValueError, match=r"cut\.pth"):
            read_state_dict(tmp_path / "cut.pth")


def test_the_real_files_load_completely(real_data: Path) -> None:
    resnet = Backbone("resnet50", 8, stride_in_1x1=True)
    report = load_weights(resnet, real_data / "weights" / "resnet50_imagenet_caffestride_fp16.pth")
    assert report.missing == report.unused == report.misshapen == ()
    assert report.classifier == ("fc.weight", "fc.bias")
    mobilenet = Backbone("mobilenetv2")
    report = load_weights(mobilenet, real_data / "weights" / "mobilenet_v2_imagenet_features_fp16.pth")
    assert report.missing == report.unused == report.misshapen == ()
    assert report.loaded == len(mobilenet.state_dict())
