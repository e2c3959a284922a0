"""Bundled models: the measurements on their cards can be reproduced."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import dnlnet
from dnlnet.artifacts.card import card_text, model_card
from dnlnet.artifacts.model_file import find_model, read_header, read_model_file
from dnlnet.bundled import MODELS, PHOTOS, WEIGHTS
from dnlnet.cli.main import app
from dnlnet.recipes.backbone import build_backbone
from dnlnet.registry import find_recipe
from dnlnet.runs.consistency import consistency
from observer import Recorder

CAMVID = Path(os.environ["DNLNET_DATA"], "camvid") if "DNLNET_DATA" in os.environ else None
needs_camvid = pytest.mark.skipif(CAMVID is None, reason="DNLNET_DATA is not set: no real data")
LARGEST = 8_000_000  # maximum bytes of a model


@pytest.mark.parametrize("name", MODELS)
def test_a_bundled_model_is_small_in_half_precision_and_contains_no_local_path(name: str) -> None:
    path = find_model(name)
    assert path.stat().st_size <= LARGEST
    metadata, kinds = read_header(path)
    assert {kind for _, kind in kinds.values()} <= {"F16", "I64"}
    assert "/" not in str(json.loads(metadata["recipe"])["model"]["weights"])


def test_a_photo_of_a_street_is_segmented() -> None:
    prediction = dnlnet.load("street").predict(PHOTOS[0])
    shares = prediction.shares()
    assert {"Sky", "Building", "Road"} <= set(shares)
    sky, road = (prediction.labels == prediction.classes.names.index(name) for name in ("Sky", "Road"))
    rows = np.arange(len(sky))[:, None]
    assert (rows * sky).sum() / sky.sum() < 0.5 * len(sky) < (rows * road).sum() / road.sum()  # sky above, road below


def test_the_card_states_origin_licence_scores_and_use() -> None:
    file = read_model_file(find_model("street"))
    text = card_text(file, "street")
    assert file.scores is not None
    assert file.by_class is not None
    assert set(file.by_class) == set(file.classes.names)
    for expected in (
        "CC BY-NC 4.0",
        MODELS["street"].command,
        f"| miou | {file.scores['miou']:.4f} |",
        f"| Sky | {file.by_class['Sky']:.4f} |",
        'dnlnet.load("street")',
        "unary ∩ boundary",
    ):
        assert expected in text
    assert model_card(file, "street").data.license == "cc-by-nc-4.0"
    assert model_card(file, "you/model").data.license is None


def test_the_command_lists_bundled_models_and_prints_a_card(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["models", "--json", str(tmp_path / "models.json")])
    assert listed.exit_code == 0, listed.output
    assert set(json.loads((tmp_path / "models.json").read_text())) == set(MODELS)
    assert "street" in listed.output
    card = CliRunner().invoke(app, ["models", "street"])
    assert "# street" in card.output
    wrong = CliRunner().invoke(app, ["models", "streat"])
    assert "'street'" in str(wrong.exception)


def test_a_file_or_run_of_the_same_name_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("street").mkdir()  # for example, a folder of images
    assert find_model("street") == MODELS["street"].file
    Path("street/best.safetensors").touch()
    assert find_model("street") == Path("street/best.safetensors")


def test_names_work_in_commands(tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    with Image.open(PHOTOS[1]) as opened:
        opened.reduce(4).save(photo)
    predicted = CliRunner().invoke(app, ["predict", "street", str(photo), "-o", str(tmp_path / "predicted")])
    assert predicted.exit_code == 0, predicted.output
    page = tmp_path / "page.html"
    attended = CliRunner().invoke(app, ["attend", "street", str(photo), "--page", str(page)])
    assert attended.exit_code == 0, attended.output
    assert '"name": "photo"' in page.read_text()


def test_imagenet_weights_of_mobilenet_need_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    model = find_recipe("folder-mbv2_frozen-dnl").model
    backbone = build_backbone(model, 32, pretrained=True, progress=(recorder := Recorder()))
    assert recorder.said == ["mobilenetv2: ImageNet weights bundled with dnlnet: 306 tensors loaded"]
    own = backbone.state_dict()["body.conv_stem.weight"]
    street = build_backbone(model.model_copy(update={"weights": "street"}), 32, pretrained=True)
    assert not torch.equal(own, street.state_dict()["body.conv_stem.weight"])  # changed by training


@needs_camvid
def test_the_bundled_weights_equal_their_source() -> None:
    """Compare with the original weights, read by torch alone under their own names."""
    assert CAMVID is not None
    source = CAMVID.parent / "weights" / "mobilenet_v2_imagenet_features_fp16.pth"
    expected = torch.load(source, weights_only=True)
    given = load_file(WEIGHTS["mobilenetv2"])
    assert set(expected) - set(given) == {name for name in expected if name.startswith("features.18.")}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in given.items())


@needs_camvid
def test_the_scores_on_the_card_are_reproduced() -> None:
    file = read_model_file(find_model("street"))
    scores = dnlnet.evaluate("street", CAMVID)
    assert scores is not None
    assert scores.values == pytest.approx(file.scores, abs=2e-4)
    assert scores.content["by_class"] == pytest.approx(file.by_class, abs=2e-3)


@needs_camvid
def test_the_attention_on_the_card_is_reproduced() -> None:
    measured = json.loads(MODELS["street"].measured.read_text())
    (_, expected), _ = measured["some"].items()
    images = expected["pair_within"]["images"]
    found, _ = consistency(["street"], CAMVID, width=measured["width"], limit=images).table().values()
    for key in ("pair_within", "pair_boundary", "unary_boundary"):
        average = found[key]
        assert average is not None
        assert average.mean == pytest.approx(expected[key]["mean"], rel=1e-3)


def test_the_attention_of_street_is_far_from_uniform() -> None:
    (_, own), (_, uniform) = json.loads(MODELS["street"].measured.read_text())["rows"].items()
    assert own["pair_within"]["mean"] >= 3 * uniform["pair_within"]["mean"]
    assert own["unary_boundary"]["mean"] >= 1.5 * uniform["unary_boundary"]["mean"]
