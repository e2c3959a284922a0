"""A trained model in use: load, info, eval and predict."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.artifacts.model_file import find_model, read_model_file
from dnlnet.backbones.pixels import normalised
from dnlnet.cli.main import app
from dnlnet.engine import distributed
from dnlnet.engine.log import read_log
from dnlnet.runs.predict import predict
from trees import truncate, write_image


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    write_image(tmp_path / "photos" / "a.jpg", seed=1, size=(40, 56))
    write_image(tmp_path / "photos" / "deep" / "b.png", seed=2, size=(33, 47))
    return tmp_path / "photos"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def test_a_loaded_model_predicts_every_kind_of_image(run: Path, photos: Path) -> None:
    model = dnlnet.load(run)
    prediction = model.predict(photos / "a.jpg")
    assert prediction.labels.shape == (40, 56)
    assert prediction.scores is not None
    np.testing.assert_allclose(prediction.scores.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(prediction.scores.argmax(axis=0), prediction.labels)
    assert prediction.overlay().shape == (40, 56, 3)
    assert sum(prediction.shares().values()) == pytest.approx(1)
    with Image.open(photos / "a.jpg") as image:
        np.testing.assert_array_equal(model.predict(image).labels, prediction.labels)
        np.testing.assert_array_equal(model.predict(np.asarray(image)).labels, prediction.labels)
    with pytest.raises(ValueError, match=r"must be \(height, width\) or \(height, width, 3\), got \(4, 4, 5\)"):
        model.predict(np.zeros((4, 4, 5), dtype=np.uint8))


def test_a_loaded_model_is_the_trained_network_in_a_faster_form(run: Path, photos: Path) -> None:
    model = dnlnet.load(run)
    assert not [module for module in model.network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    network = read_model_file(find_model(str(run))).recipe.build(6).eval()
    network.load_state_dict(load_file(run / "best.safetensors"))
    prediction = model.predict(photos / "a.jpg")
    images = torch.from_numpy(prediction.image.copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        scores = network(normalised(images)).logits.softmax(dim=1)[0]
    np.testing.assert_allclose(prediction.scores, scores.numpy(), atol=1e-4)


def test_a_very_large_image_is_predicted_in_tiles(run: Path) -> None:
    model = dnlnet.load(run)
    pixels = np.random.default_rng(0).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    prediction = model.predict(pixels, max_pixels=65536)
    assert prediction.scores is None
    assert prediction.labels.shape == (300, 420)
    whole = model.predict(pixels)
    assert (prediction.labels == whole.labels).mean() > 0.8


def test_eval_gives_the_score_of_the_training_run(run: Path, tmp_path: Path) -> None:
    arguments = ["eval", run, "--workers", 0, "--json", tmp_path / "s.json", "--picture", tmp_path / "c.png"]
    done = command(*arguments)
    assert done.exit_code == 0, done.output
    logged = [line for line in read_log(run) if line["event"] == "evaluation"][-1]
    scores = json.loads((tmp_path / "s.json").read_text())
    assert scores["miou"] == pytest.approx(logged["miou"])
    assert scores["by_class"] == pytest.approx(logged["by_class"])
    assert (tmp_path / "c.png").stat().st_size > 5000


def test_options_replace_the_inference_settings(run: Path, tmp_path: Path) -> None:
    scores = []
    for number, options in enumerate([["--whole"], ["--scales", "1,2", "--flip"], ["--window", "16"]]):
        done = command("eval", run, "--workers", 0, "--json", tmp_path / f"{number}.json", *options)
        assert done.exit_code == 0, done.output
        scores.append(json.loads((tmp_path / f"{number}.json").read_text())["miou"])
    assert len(set(scores)) == 3
    with pytest.raises(ValueError, match="--scales a,b: expected numbers"):
        CliRunner().invoke(app, ["eval", str(run), "--scales", "a,b"], catch_exceptions=False)
    with pytest.raises(ValueError, match="contradict"):
        CliRunner().invoke(app, ["eval", str(run), "--whole", "--window", "9"], catch_exceptions=False)


def test_predict_writes_three_files_per_image_and_skips_finished_ones(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = command("predict", run, photos, "-o", out)
    assert done.exit_code == 0, done.output
    assert "2 done; results" in done.output
    for kind in ("labels", "colours", "overlay"):
        for name, (width, height) in (("a.png", (56, 40)), ("deep/b.png", (47, 33))):
            with Image.open(out / kind / name) as image:
                assert image.width == width
                assert image.height > height if kind == "overlay" else image.height == height  # the legend is below
    assert re.search(r"^.*photos/a\.jpg: \w+ \d+ %", done.output, flags=re.MULTILINE)
    with Image.open(out / "labels" / "a.png") as image:
        np.testing.assert_array_equal(np.asarray(image), dnlnet.load(run).predict(photos / "a.jpg").labels)
        colours = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(colours, np.asarray(Image.open(out / "colours" / "a.png")))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    (out / "overlay" / "a.png").unlink()
    again = command("predict", run, photos, "-o", out)
    assert re.search("1 done, 1 of them again, .*, 1 done before", again.output)
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("b.png")}
    assert all(before[path] == time for path, time in kept.items())
    assert not list(out.rglob(".*"))


@pytest.mark.filterwarnings("ignore")  # PyTorch's exporter warns about itself
def test_another_backend_writes_the_same_images_and_resumes_the_job(run: Path, photos: Path, tmp_path: Path) -> None:
    done = command("predict", run, photos, "-o", tmp_path / "other", "--backend", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert "exporting the network for onnxruntime" in done.output
    assert command("predict", run, photos, "-o", tmp_path / "torch").exit_code == 0
    for name in ("a.png", "deep/b.png"):
        with (
            Image.open(tmp_path / "other" / "labels" / name) as found,
            Image.open(tmp_path / "torch" / "labels" / name) as expected,
        ):
            assert (np.asarray(found) == np.asarray(expected)).mean() > 0.999
    again = command("predict", run, photos, "-o", tmp_path / "other")
    assert "2 done before" in again.output


def test_predictions_in_bfloat16_are_another_job(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    out, half = tmp_path / "out", ("--precision", "bfloat16")
    assert "predicting in" not in command("predict", run, photos, "-o", out).output
    assert "precision" not in json.loads((out / "predict.json").read_text())  # resumes jobs of earlier versions
    with pytest.raises(ValueError, match="other settings"):
        CliRunner().invoke(app, ["predict", str(run), str(photos), "-o", str(out), *half], catch_exceptions=False)
    done = command("predict", run, photos, "-o", out, "--force", *half)
    assert "predicting in bfloat16" in done.output
    assert "2 done;" in done.output
    assert "2 done before" in command("predict", run, photos, "-o", out, *half).output


def test_eval_in_bfloat16_says_so(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    scores = []
    for precision in ("float32", "bfloat16"):
        done = command("eval", run, "--workers", 0, "--json", tmp_path / "s.json", "--precision", precision)
        assert ("scored in bfloat16" in done.output) == (precision == "bfloat16")
        scores.append(json.loads((tmp_path / "s.json").read_text()))
    assert [one.get("precision") for one in scores] == [None, "bfloat16"]
    assert scores[1]["miou"] == pytest.approx(scores[0]["miou"], abs=0.02)


def test_a_broken_image_is_reported_and_the_rest_is_predicted(run: Path, photos: Path, tmp_path: Path) -> None:
    write_image(photos / "cut.png", size=(60, 60))
    truncate(photos / "cut.png")
    done = command("predict", run, photos, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "cut.png: cannot be read" in done.output
    assert "2 done, 1 bad" in done.output
    assert not (tmp_path / "out" / "labels" / "cut.png").exists()


def test_predictions_of_another_model_are_not_overwritten_without_force(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command("predict", run / "best.safetensors", photos, "-o", out)
    other = tmp_path / "other.safetensors"
    tensors = load_file(run / "best.safetensors")
    from safetensors import safe_open

    with safe_open(run / "best.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file(
        {name: value + 1 if value.is_floating_point() else value for name, value in tensors.items()}, other, metadata
    )
    before = (out / "labels" / "a.png").read_bytes()
    with pytest.raises(ValueError, match="holds predictions of another model"):
        CliRunner().invoke(app, ["predict", str(other), str(photos), "-o", str(out)], catch_exceptions=False)
    assert (out / "labels" / "a.png").read_bytes() == before
    assert command("predict", other, photos, "-o", out, "--force").exit_code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="exists and holds other files"):
        CliRunner().invoke(
            app, ["predict", str(run), str(photos), "-o", str(tmp_path / "mine")], catch_exceptions=False
        )


def test_info_describes_a_model(run: Path) -> None:
    shown = yaml.safe_load(command("info", run).output)
    assert shown["recipe"]["name"] == "scenes-tiny-dnl"
    assert shown["classes"][0] == "sky"
    assert shown["iteration"] == 20
    assert set(shown["scores"]) == {"miou", "accuracy"}
    assert shown["values"] == sum(value.numel() for value in load_file(run / "best.safetensors").values())


def test_files_that_are_not_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> str:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(FileNotFoundError, match="no such model file or run folder"):
        dnlnet.load("nowhere.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no best\.safetensors, last\.safetensors or checkpoint in it"):
        dnlnet.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="the hub has no such model or cannot be reached"):
        dnlnet.load("nobody/nothing")
    save_file({"w": torch.zeros(1)}, tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="has weights but no recipe"):
        dnlnet.load(tmp_path / "plain.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"123")
    with pytest.raises(ValueError, match="or is damaged"):
        dnlnet.load(tmp_path / "cut.safetensors")


def test_processes_share_the_images(run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process predicts what the others do not; together they predict everything."""
    model, out = dnlnet.load(run), tmp_path / "out"
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    done = []
    for rank in range(2):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        done.append([result.path.name for result in predict(model, [photos], out)])
    assert sorted(done) == [["a.jpg"], ["b.png"]]
    assert len(list(out.rglob("*.png"))) == 6
