import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import dnlnet
from dnlnet.cli.main import app
from dnlnet.lens.measure.ablate import TERMS, ablate
from dnlnet.runs.ablate import ablate_features, ablate_model
from families import family
from trees import camvid_tree, write_image


class SmallTransformer:
    """Small stand-in for a downloaded transformer."""

    notes = ("weights are random",)

    def __init__(self) -> None:
        self.network = family("timm DINOv2 with registers").network

    def prepare(self, pixels: np.ndarray) -> Tensor:
        resized = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].double() / 64 - 2
        return torch.nn.functional.interpolate(resized, size=(28, 42))

    def run(self, images: Tensor) -> None:
        with torch.no_grad():
            self.network(images)


@pytest.fixture
def images() -> list[tuple[np.ndarray, None]]:
    generator = np.random.default_rng(0)
    return [(generator.integers(0, 256, (30, 40, 3), dtype=np.uint8), None) for _ in range(2)]


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.runs.ablate.load_transformer", lambda *_, **options: SmallTransformer())


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# ---- features


def test_distances_of_features_equal_the_formula(images: list[tuple[np.ndarray, None]]) -> None:
    model = SmallTransformer()
    found = ablate_features(model, images)
    assert found.images == 2
    assert found.layers == [None, "blocks.0.attn", "blocks.1.attn"]
    changes, cosines = [], []
    for pixels, _ in images:  # by hand
        image = model.prepare(pixels)
        with torch.no_grad():
            whole = model.network.forward_features(image)[0, 5:]
            with ablate(model.network, "pairwise", "blocks.1.attn"):
                other = model.network.forward_features(image)[0, 5:]
        changes.append(((other - whole).square().sum() / whole.square().sum()).sqrt())
        cosines.append(((other * whole).sum(dim=1) / (other.norm(dim=1) * whole.norm(dim=1))).mean())
    measured = found.value("blocks.1.attn", "pairwise", "relative change")
    assert measured == pytest.approx(float(sum(changes) / 2), rel=1e-4)
    assert found.value("blocks.1.attn", "pairwise", "cosine") == pytest.approx(float(sum(cosines) / 2), rel=1e-4)
    assert 0 < measured < found.value(None, "pairwise", "relative change")


def test_chosen_layers_and_terms(images: list[tuple[np.ndarray, None]]) -> None:
    found = ablate_features(SmallTransformer(), images[:1], terms=["unary"], layers=[1])
    assert [(effect.layer, effect.term) for effect in found.effects] == [(None, "unary"), ("blocks.1.attn", "unary")]
    with pytest.raises(ValueError, match="there is no attention layer 2; the model has 2"):
        ablate_features(SmallTransformer(), images, layers=[2])
    with pytest.raises(ValueError, match=r"unknown attention layer 'blocks\.1'"):
        ablate_features(SmallTransformer(), images, layers=["blocks.1"])
    with pytest.raises(ValueError, match="there are no images"):
        ablate_features(SmallTransformer(), [])


@pytest.mark.usefixtures("foreign")
def test_the_command_reports_feature_distances(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    output = run("ablate", "timm:small", tmp_path / "a.png", "--json", tmp_path / "out.json", "--terms", "unary")
    assert "relative change" in output
    assert "weights are random" in output
    content = json.loads((tmp_path / "out.json").read_text())
    assert [row["layer"] for row in content["rows"]] == ["all", "blocks.0.attn", "blocks.1.attn"]
    assert set(content["rows"][0]) == {"layer", "term", "relative change", "cosine"}


@pytest.mark.usefixtures("foreign")
def test_the_command_scores_a_patch_classifier(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    arguments = ("ablate", "timm:small", "--data", root, "--data-set", "camvid", "--json")
    output = run(*arguments, tmp_path / "one.json", "--layers", "0")
    assert "miou" in output
    content = json.loads((tmp_path / "one.json").read_text())
    assert content["images"] == 1
    assert 0 <= content["whole"]["miou"] <= 1
    assert [(row["layer"], row["term"]) for row in content["rows"]] == [
        (layer, term) for layer in ("all", "blocks.0.attn") for term in TERMS
    ]
    run(*arguments, tmp_path / "two.json", "--layers", "0")
    assert json.loads((tmp_path / "two.json").read_text()) == content


# ---- dnlnet models


def test_a_model_is_scored_without_its_terms(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    found = ablate_model("street", root)
    scores = dnlnet.evaluate("street", root)
    assert scores is not None
    assert found.whole == scores.values
    assert found.layers == [None]  # the only block is all layers
    assert found.images == 1
    assert any(effect.values != found.whole for effect in found.effects)
    assert [effect.term for effect in found.effects] == list(TERMS)


@pytest.mark.usefixtures("foreign")
def test_the_command_ablates_a_dnlnet_model(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    output = run("ablate", "street", "--data", root, "--terms", "unary,pairwise", "--json", tmp_path / "a.json")
    assert "without pairwise" in output
    content = json.loads((tmp_path / "a.json").read_text())
    assert [row["term"] for row in content["rows"]] == ["unary", "pairwise"]
    assert content["whole"]["miou"] is not None


# ---- bad input


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["timm:small"], "give images .* or --data DIR with labels"),
        (["timm:small", "--data", "."], "looks like none of the known data sets"),
        (["timm:small", "a.png", "--data-set", "camvid"], "--data-set camvid: .* --data DIR"),
        (["timm:small", "--data", ".", "--data-set", "camvidd"], "unknown data set 'camvidd'; did you mean 'camvid'"),
        (["timm:small", "nowhere.png"], "nowhere.png: no such file"),
        (["timm:small", "a.png", "--terms", "unry"], "unknown term 'unry'; did you mean 'unary'"),
        (["timm:small", "a.png", "--layers", "1,,2"], "--layers 1,,2: expected"),
        (["street", "--size", "224"], "size: is for transformers of other libraries"),
        (["street", "a.png"], "pictures: is for transformers of other libraries"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises((ValueError, OSError), match=problem):
        run("ablate", *arguments)
