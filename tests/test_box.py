"""The models that the package carries: what their cards say is measured again."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import dnlnet
from dnlnet.artifacts.card import card_text, model_card
from dnlnet.artifacts.model_file import find_model, read_header, read_model_file
from dnlnet.box import BOX, PHOTOS
from dnlnet.cli.main import app
from dnlnet.runs.consistency import measure_consistency

CAMVID = Path(os.environ["DNLNET_DATA"], "camvid") if "DNLNET_DATA" in os.environ else None
needs_camvid = pytest.mark.skipif(CAMVID is None, reason="DNLNET_DATA is not set: no real data")
LARGEST = 8_000_000  # bytes of a model


@pytest.mark.parametrize("name", BOX)
def test_a_model_in_the_box_is_small_halved_and_names_no_folder(name: str) -> None:
    path = find_model(name)
    assert path.stat().st_size <= LARGEST
    metadata, kinds = read_header(path)
    assert {kind for _, kind in kinds.values()} <= {"F16", "I64"}
    assert "/" not in str(json.loads(metadata["recipe"])["model"]["weights"])


def test_a_photograph_is_segmented_as_a_street() -> None:
    prediction = dnlnet.load("street").predict(PHOTOS[0])
    shares = prediction.shares()
    assert {"Sky", "Building", "Road"} <= set(shares)
    sky, road = (prediction.labels == prediction.classes.names.index(name) for name in ("Sky", "Road"))
    rows = np.arange(len(sky))[:, None]
    assert (rows * sky).sum() / sky.sum() < 0.5 * len(sky) < (rows * road).sum() / road.sum()  # above, and below


def test_the_card_says_origin_licence_scores_and_use() -> None:
    file = read_model_file(find_model("street"))
    text = card_text(file, "street")
    assert file.scores is not None
    assert file.by_class is not None
    assert set(file.by_class) == set(file.classes.names)
    for expected in (
        "CC BY-NC 4.0",
        BOX["street"].command,
        f"| miou | {file.scores['miou']:.4f} |",
        f"| Sky | {file.by_class['Sky']:.4f} |",
        'dnlnet.load("street")',
        "unary ∩ boundary",
    ):
        assert expected in text
    assert model_card(file, "street").data.license == "cc-by-nc-4.0"
    assert model_card(file, "you/model").data.license is None


def test_the_command_lists_the_box_and_prints_a_card(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["models", "--json", str(tmp_path / "models.json")])
    assert listed.exit_code == 0, listed.output
    assert set(json.loads((tmp_path / "models.json").read_text())) == set(BOX)
    assert "street" in listed.output
    card = CliRunner().invoke(app, ["models", "street"])
    assert "# street" in card.output
    wrong = CliRunner().invoke(app, ["models", "streat"])
    assert str(wrong.exception) == "unknown model 'streat'; did you mean 'street'? known: street"


def test_a_file_or_run_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("street").mkdir()  # a folder with photographs, say
    assert find_model("street") == BOX["street"].file
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


@needs_camvid
def test_the_scores_on_the_card_are_measured_again() -> None:
    file = read_model_file(find_model("street"))
    scores = dnlnet.evaluate("street", CAMVID)
    assert scores is not None
    assert scores.values == pytest.approx(file.scores, abs=2e-4)
    assert scores.content["by_class"] == pytest.approx(file.by_class, abs=2e-3)


@needs_camvid
def test_the_attention_on_the_card_is_measured_again() -> None:
    """On eight pictures of the 101: their mean must lie within five standard errors of the mean on the card."""
    measured = json.loads(BOX["street"].measured.read_text())
    (_, on_card), (_, uniform) = measured["rows"].items()
    table = measure_consistency(["street"], CAMVID, width=measured["width"], images=8).table()
    now, _ = table.values()
    for key in ("pair_within", "unary_boundary"):
        average = now[key]
        assert average is not None
        error = 5 * on_card[key]["error"] * (on_card[key]["images"] / 8) ** 0.5
        assert average.mean == pytest.approx(on_card[key]["mean"], abs=error)
    assert on_card["pair_within"]["mean"] >= 3 * uniform["pair_within"]["mean"]
    assert on_card["unary_boundary"]["mean"] >= 1.5 * uniform["unary_boundary"]["mean"]
