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
from dnlnet.bundled import MODELS, WEIGHTS
from dnlnet.cli.main import app
from dnlnet.recipes.backbone import build_backbone
from dnlnet.registry import find_recipe
from dnlnet.runs.consistency import consistency
from observer import Recorder

DATA = Path(os.environ["DNLNET_DATA"]) if "DNLNET_DATA" in os.environ else None
SETS = {"pets": "oxford_pets_789", "street": "camvid"}  # data set of each model, in the folder of real data
needs_data = pytest.mark.skipif(DATA is None, reason="DNLNET_DATA is not set: no real data")
LARGEST = 8_000_000  # maximum bytes of a model


@pytest.mark.parametrize("name", MODELS)
def test_a_bundled_model_is_small_in_half_precision_and_contains_no_local_path(name: str) -> None:
    path = find_model(name)
    assert path.stat().st_size <= LARGEST
    metadata, kinds = read_header(path)
    assert {kind for _, kind in kinds.values()} <= {"F16", "I64"}
    assert "/" not in str(json.loads(metadata["recipe"])["model"]["weights"])


def test_a_photo_of_a_street_is_segmented() -> None:
    prediction = dnlnet.load("street").predict(MODELS["street"].photos[0])
    shares = prediction.shares()
    assert {"Sky", "Building", "Road"} <= set(shares)
    sky, road = (prediction.labels == prediction.classes.names.index(name) for name in ("Sky", "Road"))
    rows = np.arange(len(sky))[:, None]
    assert (rows * sky).sum() / sky.sum() < 0.5 * len(sky) < (rows * road).sum() / road.sum()  # sky above, road below


def test_a_cat_is_separated_from_the_background() -> None:
    """Look at places that a person marked in the photo: forehead, cheek and nose of the cat; wall on the right."""
    labels = dnlnet.load("pets").predict(MODELS["pets"].photos[0]).labels
    assert labels.shape == (300, 451)
    assert [labels[y, x] for x, y in ((230, 60), (130, 200), (265, 210), (435, 150), (430, 280))] == [1, 1, 1, 0, 0]


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
    content = json.loads((tmp_path / "models.json").read_text())
    assert {name: model["licence"] for name, model in content.items()} == {
        "pets": "CC-BY-SA-4.0",
        "street": "CC-BY-NC-4.0",
    }
    assert all(name in listed.output and model["licence"] in listed.output for name, model in content.items())
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


def test_without_its_package_a_name_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MODELS, "street")  # type: ignore[misc]
    photo = str(MODELS["pets"].photos[0])
    for command in (
        ["models", "street"],
        ["predict", "street", photo, "-o", str(tmp_path / "out")],
        [
            "train",
            "folder-mbv2_frozen-dnl",
            "--data",
            str(tmp_path),
            "--out",
            str(tmp_path / "r"),
            "--weights=street",
        ],
    ):
        wrong = CliRunner().invoke(app, command)
        assert isinstance(wrong.exception, ModuleNotFoundError), command
        for fact in ("street", "non-commercial", "pip install dnlnet-street", "./packages/street"):
            assert fact in str(wrong.exception)
    near = CliRunner().invoke(app, ["predict", "streat", photo])
    assert "'street'" in str(near.exception)


def test_the_demo_without_street_shows_the_cat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MODELS, "street")  # type: ignore[misc]
    done = CliRunner().invoke(app, ["demo", "--steps", "1", "--against", "none", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    with Image.open(tmp_path / "pets.png") as figure:
        figure.load()
    page = (tmp_path / "explore.html").read_text()
    assert "cat.jpg" in page
    assert "corner.jpg" not in page


@pytest.mark.parametrize("name", MODELS)
def test_names_work_in_commands(name: str, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    with Image.open(MODELS[name].photos[-1]) as opened:
        opened.reduce(4).save(photo)
    predicted = CliRunner().invoke(app, ["predict", name, str(photo), "-o", str(tmp_path / "predicted")])
    assert predicted.exit_code == 0, predicted.output
    page = tmp_path / "page.html"
    attended = CliRunner().invoke(app, ["attend", name, str(photo), "--page", str(page)])
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


@needs_data
def test_the_bundled_weights_equal_their_source() -> None:
    """Compare with the original weights, read by torch alone under their own names."""
    assert DATA is not None
    source = DATA / "weights" / "mobilenet_v2_imagenet_features_fp16.pth"
    expected = torch.load(source, weights_only=True)
    given = load_file(WEIGHTS["mobilenetv2"])
    assert set(expected) - set(given) == {name for name in expected if name.startswith("features.18.")}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in given.items())


@needs_data
@pytest.mark.parametrize("name", MODELS)
def test_the_scores_on_the_card_are_reproduced(name: str) -> None:
    assert DATA is not None
    file = read_model_file(find_model(name))
    scores = dnlnet.evaluate(name, DATA / SETS[name])
    assert scores is not None
    assert scores.values == pytest.approx(file.scores, abs=2e-4)
    assert scores.content["by_class"] == pytest.approx(file.by_class, abs=2e-3)


@needs_data
@pytest.mark.parametrize("name", MODELS)
def test_the_attention_on_the_card_is_reproduced(name: str) -> None:
    assert DATA is not None
    measured = json.loads(MODELS[name].measured.read_text())
    (_, expected), _ = measured["some"].items()
    images = expected["pair_within"]["images"]
    options = {"width": measured["width"], "void_edges": measured.get("void_edges", False)}
    found, _ = consistency([name], DATA / SETS[name], **options, limit=images).table().values()
    for key in ("pair_within", "pair_boundary", "unary_boundary"):
        average = found[key]
        assert average is not None
        assert average.mean == pytest.approx(expected[key]["mean"], rel=1e-3)


def test_the_attention_of_street_is_far_from_uniform() -> None:
    (_, own), (_, uniform) = json.loads(MODELS["street"].measured.read_text())["rows"].items()
    assert own["pair_within"]["mean"] >= 3 * uniform["pair_within"]["mean"]
    assert own["unary_boundary"]["mean"] >= 1.5 * uniform["unary_boundary"]["mean"]
