import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from dnlnet.artifacts.load import load
from dnlnet.artifacts.model_file import find_model, open_model, read_header, read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.runs.predict import predict

STORED = Path(__file__).parent / "stored" / "model.safetensors"
METADATA = read_header(STORED)[0]


def changed(path: Path, texts: dict[str, str | None] | None = None, state: dict[str, Any] | None = None) -> Path:
    """Write the stored model with changed metadata and tensors; None removes an entry."""
    metadata = {name: text for name, text in {**METADATA, **(texts or {})}.items() if text is not None}
    tensors = {name: tensor for name, tensor in {**load_file(STORED), **(state or {})}.items() if tensor is not None}
    save_file(tensors, path, metadata)
    return path


def recipe_with(**parts: Any) -> str:
    return json.dumps({**json.loads(METADATA["recipe"]), **parts})


def classes_with(**parts: Any) -> str:
    content = {**json.loads(METADATA["classes"]), **parts}
    return json.dumps({name: value for name, value in content.items() if value is not None})


def test_a_model_file_of_an_earlier_version_can_be_read() -> None:
    model = load(STORED)
    assert model.file.recipe.name == "scenes-tiny-dnl"
    assert model.file.iteration == 3
    assert model.file.scores is not None
    assert set(model.file.scores) == {"miou", "accuracy"}
    assert model.predict(np.zeros((32, 40, 3), dtype=np.uint8)).scores.shape[-2:] == (32, 40)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"recipe": None}, "no recipe"),
        ({"classes": None}, "no recipe"),
        ({"recipe": "null"}, "recipe cannot be read by this version of dnlnet: expected a mapping, got nothing"),
        ({"recipe": "[]"}, "expected a mapping, got []"),
        ({"recipe": '{"a":' * 10_000}, "nested too deeply"),
        ({"recipe": "{"}, "is not JSON"),
        ({"recipe": '{"name": "a", "name": "b"}'}, "the key 'name'"),
        ({"recipe": recipe_with(task=["segmentation"])}, "task: expected one of segmentation, detection, video, got"),
        ({"recipe": recipe_with(task="video")}, "unknown model.network 'tiny'; known: slow_only, frozen"),
        ({"recipe": recipe_with(model=[])}, "model=[]: expected a mapping"),
        ({"recipe": recipe_with(name="../../../tmp/x")}, "name=../../../tmp/x: expected up to 100 letters"),
        ({"recipe": recipe_with(flight=1)}, "flight: "),
        ({"classes": "null"}, "classes=null: expected a mapping"),
        ({"classes": "[" * 10_000}, "nested too deeply"),
        ({"classes": classes_with(names=None)}, "classes.names: is missing"),
        ({"classes": classes_with(names=[], palette=[])}, "classes.names=[]: expected at least 1 values, got 0"),
        ({"classes": classes_with(names=[1, 2])}, "classes.names.0=1: expected text"),
        ({"classes": classes_with(names={"a": 1})}, "classes.names: expected a list"),
        ({"classes": classes_with(names="abcdef")}, "classes.names=abcdef: expected a list"),
        ({"classes": classes_with(palette=None)}, "classes.palette: is missing"),
        (
            {"classes": classes_with(palette=[[0, 0, 999]] * 6)},
            "classes.palette.0=[0, 0, 999]: expected [red, ",
        ),
        ({"classes": classes_with(palette=[[0, 0, 9]])}, "6 class names but 1 colours"),
        ({"classes": classes_with(numbers=[1])}, "6 class names but 1 numbers"),
        ({"classes": classes_with(numbers=[True] * 6)}, "classes.numbers.0=true: expected a whole number"),
        ({"iteration": "true"}, "iteration=true: expected a whole number"),
        ({"iteration": "[3]"}, "iteration=[3]: expected a whole number"),
        ({"iteration": "-3"}, "iteration=-3: expected at least 0"),
        ({"iteration": str(2**63)}, "iteration=9223372036854775808: expected less than"),
        ({"iteration": "9" * 5000}, "is not JSON"),
        ({"scores": '{"miou": "high"}'}, "scores.miou=high: expected a number"),
        ({"scores": "[0.5]"}, "scores=[0.5]: expected a mapping"),
    ],
)
def test_bad_metadata_is_refused_in_one_line(texts: dict, message: str, tmp_path: Path) -> None:
    path = changed(tmp_path / "a.safetensors", texts)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read_model_file(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("texts", "state", "message"),
    [
        (None, {"block.saliency.bias": None}, "missing block.saliency.bias"),
        (None, {"features.0.1.num_batches_tracked": None}, "missing features.0.1.num_batches_tracked"),
        (None, {"strange": torch.ones(2)}, "strange"),
        (None, {"classifier.bias": torch.ones(7)}, "classifier.bias is (7,) of F32, expected (6,)"),
        (
            None,
            {"classifier.bias": torch.ones(6, dtype=torch.int64)},
            "classifier.bias is (6,) of I64",
        ),
        (None, {"classifier.bias": torch.ones(6, dtype=torch.bool)}, "classifier.bias is (6,) of BOOL"),
        (
            {"classes": classes_with(names=["a", "b"], palette=[[0, 0, 0]] * 2)},
            None,
            "classifier.bias is (6,) of F32, expected (2,)",
        ),
        (
            {"recipe": recipe_with(model={**json.loads(METADATA["recipe"])["model"], "variant": "gc"})},
            None,
            "block.key.bias, block.key.weight, block.query.bias",
        ),
        (
            {"recipe": recipe_with(model={**json.loads(METADATA["recipe"])["model"], "width": 60_000})},
            None,
            "expected (",
        ),
    ],
)
def test_weights_of_another_network_are_refused_in_one_line(
    texts: dict | None, state: dict | None, message: str, tmp_path: Path
) -> None:
    model = read_model_file(changed(tmp_path / "a.safetensors", texts, state))
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        load_network(model)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_weights_of_another_precision_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    state = {name: tensor.to(dtype) for name, tensor in load_file(STORED).items() if tensor.is_floating_point()}
    network = load_network(read_model_file(changed(tmp_path / "a.safetensors", state=state)))
    loaded = network.state_dict()
    for name, tensor in state.items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], tensor.float()), name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_give_a_warning(value: float, tmp_path: Path) -> None:
    path = changed(tmp_path / "a.safetensors", state={"classifier.bias": torch.full((6,), value)})
    with pytest.warns(UserWarning, match=r"a.safetensors: .*not finite .*classifier\.bias"):
        load(path)


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"{", b'{"__metadata__": null}', b'{"__metadata__": {"recipe": 1}}', b'{"a":' * 500],
)
def test_bad_headers_are_refused(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match=r"a\.safetensors: .*(damaged|no recipe)"):
        read_model_file(path)


def test_a_name_with_control_characters_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "a.safetensors", state={"\x1b[31m\nred": torch.ones(1)})
    with pytest.raises(ValueError, match=r"a\.safetensors: has a tensor named ") as error:
        read_model_file(path)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("evaluation", [{"window": [8, 8], "stride": [1, 1]}, {"scales": [20] * 50}])
def test_a_model_that_would_never_finish_is_refused(evaluation: dict[str, Any], tmp_path: Path) -> None:
    path = changed(tmp_path / "a.safetensors", {"recipe": recipe_with(evaluation=evaluation)})
    Image.new("RGB", (600, 500)).save(tmp_path / "a.png")
    Image.new("RGB", (6, 5)).save(tmp_path / "small.png")
    (small,) = predict(path, [tmp_path / "small.png"], tmp_path / "small")
    assert small.problem is None
    (done,) = predict(path, [tmp_path / "a.png"], tmp_path / "out")
    assert str(done.problem).startswith(f"{tmp_path / 'a.png'}: ")
    assert "600 x 500" in str(done.problem)
    assert not (tmp_path / "out").exists()


def test_an_unreadable_file_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed(tmp_path / "a.safetensors")
    path.chmod(0)
    if os.access(path, os.R_OK):  # true for root
        denied = PermissionError(13, "Permission denied", str(path))
        monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(denied))
    with pytest.raises(PermissionError, match=r"a\.safetensors: .*Permission denied"):
        read_model_file(path)


@pytest.mark.parametrize("name", ["me/dnl", "me/dnl-v1.0", "my.lab/dnl_2.1.x"])
def test_a_name_on_the_hub_may_have_dots(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.artifacts.model_file._from_hub", lambda asked, options: Path("/hub") / asked)
    assert find_model(name) == Path("/hub") / name


@pytest.mark.parametrize("name", ["runs/mine.safetensors", "./dnl", "../dnl", "a/b/c", "runs/", "x.pth"])
def test_names_with_other_characters_are_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.artifacts.model_file._from_hub", lambda asked, options: pytest.fail(asked))
    with pytest.raises(FileNotFoundError, match="no such model"):
        find_model(name)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("vit_small_patch14_dinov2", "timm:vit_small_patch14_dinov2"),
        ("vit_base_patch16_224.augreg_in21k", "timm:vit_base_patch16_224.augreg_in21k"),
        ("swin_v2_t", "torchvision:swin_v2_t"),
        ("vit_small_patch14_dinov9", None),
    ],
)
def test_a_name_without_its_library_suggests_the_prefix(name: str, suggested: str | None) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(name)) as error:
        find_model(name)
    assert (f"did you mean {suggested}?" in str(error.value)) == (suggested is not None)
    assert "  " not in str(error.value)
    assert ";;" not in str(error.value)


@pytest.mark.parametrize("weights", [False, True])
def test_a_folder_of_transformers_suggests_the_prefix(weights: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    if weights:
        save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises((FileNotFoundError, ValueError), match=re.escape(f"did you mean transformers:{tmp_path}?")):
        open_model(tmp_path)
