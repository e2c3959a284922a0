from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HFValidationError
from markdown_it import MarkdownIt
from PIL import Image
from safetensors.torch import load_file

import dnlnet
from dnlnet.artifacts.card import model_card
from dnlnet.artifacts.model_file import write_model_file
from dnlnet.data.classes import Classes
from dnlnet.data.scenes import scene
from dnlnet.segmentation.predictor import SegmentationModel

PIXELS = (scene(3, 64)[0].transpose(1, 2, 0) * 255).astype(np.uint8)


def test_a_saved_model_can_be_loaded(run: Path, tmp_path: Path) -> None:
    model = dnlnet.load(run)
    model.save_pretrained(tmp_path / "shared")
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    expected = model.predict(PIXELS).scores
    for again in (
        dnlnet.TrainedModel.from_pretrained(tmp_path / "shared"),
        dnlnet.TrainedModel.from_pretrained(str(tmp_path / "shared")),
        dnlnet.load(tmp_path / "shared"),
    ):
        assert isinstance(again.predictor, SegmentationModel)
        assert np.array_equal(again.predict(PIXELS).scores, expected)
        assert again.file.scores == model.file.scores
    again.save_pretrained(tmp_path / "shared")  # overwrites its own file
    assert (tmp_path / "shared" / "model.safetensors").read_bytes() == model.file.path.read_bytes()


def test_shared_files_contain_no_local_path(run: Path, tmp_path: Path) -> None:
    model = dnlnet.load(run)
    recipe = dnlnet.override(dnlnet.find_recipe("camvid-mbv2-dnl"), ["model.weights=/home/me/secret/mobilenet.pth"])
    file = replace(model.file, recipe=recipe)
    write_model_file(tmp_path / "mine.safetensors", load_file(file.path), file)
    assert b"secret" not in (tmp_path / "mine.safetensors").read_bytes()
    assert b"mobilenet.pth" in (tmp_path / "mine.safetensors").read_bytes()
    model.file = file
    model.save_pretrained(tmp_path / "shared")
    for path in (tmp_path / "shared").iterdir():
        assert b"secret" not in path.read_bytes(), path


def test_the_card_has_the_scores_and_the_command_to_load_it(run: Path) -> None:
    model = dnlnet.load(run)
    card = model.generate_model_card(name="me/scenes")
    data = yaml.safe_load(card.content.split("---")[1])
    assert (data["library_name"], data["pipeline_tag"]) == ("dnlnet", "image-segmentation")
    (result,) = data["model-index"][0]["results"]
    measured = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert measured == model.file.scores
    assert 'dnlnet.load("me/scenes")' in card.text
    assert "trained with dnlnet for 20 iterations" in card.text
    for name in model.classes.names:
        assert name in card.text
    assert "paper" not in yaml.safe_load(card.text.split("```yaml")[1].split("```")[0])


def test_names_in_a_card_are_escaped(run: Path) -> None:
    evil = "<img src=x onerror=alert(1)>\n![a](https://evil.example/a.png)"
    file = dnlnet.load(run).file
    recipe = file.recipe.model_copy(update={"name": evil})
    bad = replace(file, recipe=recipe, classes=Classes([evil] * 6, [(0, 0, 0)] * 6), scores={evil: 0.5})
    page = MarkdownIt("commonmark").enable("table").render(model_card(bad, "me/scenes").text)
    assert "<img" not in page
    assert page.count("<code") >= 2


def test_an_upload_contains_the_file_and_a_card_with_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, bytes] = {}

    class Created:
        repo_id = "me/scenes"

    def upload(self: HfApi, *, folder_path: str, **_: object) -> str:
        uploaded.update({path.name: path.read_bytes() for path in Path(folder_path).iterdir()})
        return "done"

    monkeypatch.setattr(HfApi, "create_repo", lambda *_, **__: Created())
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    model = dnlnet.load(run)
    assert model.push_to_hub("me/scenes") == "done"
    assert uploaded["model.safetensors"] == model.file.path.read_bytes()
    assert 'dnlnet.load("me/scenes")' in ModelCard(uploaded["README.md"].decode()).text


def test_an_invalid_name_is_refused() -> None:
    with pytest.raises((FileNotFoundError, HFValidationError)):
        dnlnet.TrainedModel.from_pretrained("not a name at all")


def test_a_model_accepts_images_of_any_kind(run: Path, tmp_path: Path) -> None:
    model = dnlnet.load(run)
    for name in ("a.png", "b.png"):
        Image.fromarray(PIXELS).save(tmp_path / name)
    expected = model.predict(PIXELS).labels
    tensor = torch.from_numpy(PIXELS).permute(2, 0, 1)
    for source in (Image.fromarray(PIXELS), tensor, tensor / 255, tmp_path / "a.png", str(tmp_path / "a.png")):
        assert np.array_equal(model(source).labels, expected)
    for several in (tmp_path, str(tmp_path), [PIXELS, tensor], torch.stack([tensor, tensor])):
        assert [np.array_equal(found.labels, expected) for found in model(several)] == [True, True]


def test_the_repr_describes_the_model(run: Path) -> None:
    model = dnlnet.load(run)
    miou = model.file.scores["miou"]
    assert repr(model).startswith("TrainedModel(task segmentation, block dnl, classes 6, size 0.10 million")
    assert f"score miou {miou:.3f}" in repr(model)
    page = MarkdownIt("commonmark").render(model._repr_html_())
    for text in ("scenes-tiny-dnl", "segmentation", "dnl", f"miou {miou:.3f}", *model.classes.names):
        assert f">{text}" in page or text in page


def test_attention_is_saved_as_a_figure_or_a_page(run: Path, other_run: Path, tmp_path: Path) -> None:
    model = dnlnet.load(run)
    attended = model.attend(PIXELS, queries=[(3, 5), (40, 50)])
    assert repr(attended) == "AttendResult(scenes-tiny-dnl on image)"
    titles = [axes.get_title() for part in attended.plot().subfigs for axes in part.axes]
    assert "pairwise of 2" in titles
    attended.save(tmp_path / "maps.png")
    attended.save(tmp_path / "explore.html")
    assert (tmp_path / "explore.html").read_text().startswith("<!doctype html>")
    with Image.open(tmp_path / "maps.png") as figure:
        assert min(figure.size) > 300
    both = dnlnet.attend(model, [PIXELS], against=[other_run])
    assert [part.get_suptitle() for part in both.plot().subfigs] == ["", "scenes-tiny-dnl", "scenes-tiny-nl"]
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        model.attend(tmp_path / "missing.png")
    with pytest.raises(ValueError, match="files"):
        dnlnet.attend(model, PIXELS, out=tmp_path / "out").plot()


@pytest.mark.filterwarnings("ignore")  # PyTorch's exporter warns about itself
def test_another_backend_predicts_the_same_and_still_shows_attention(run: Path) -> None:
    model, other = dnlnet.load(run), dnlnet.load(run, backend="onnxruntime")
    for size in ((64, 64), (45, 83)):
        pixels = (scene(3, size)[0].transpose(1, 2, 0) * 255).astype(np.uint8)
        expected, found = model(pixels), other(pixels)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
        ranked = np.sort(expected.scores, axis=0)
        sure = ranked[-1] - ranked[-2] > 2e-4
        assert sure.mean() > 0.99
        np.testing.assert_array_equal(found.labels[sure], expected.labels[sure])
    assert repr(other) == repr(model)
    assert repr(other.attend(PIXELS, queries=[(3, 5)])) == "AttendResult(scenes-tiny-dnl on image)"


def test_bfloat16_predicts_nearly_the_same_and_attention_stays_in_float32(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    model, half = dnlnet.load(run), dnlnet.load(run, precision="bfloat16")
    assert model.runtime_predictor is model.predictor  # nothing changes in float32
    expected, found = model(PIXELS), half(PIXELS)
    assert (found.labels == expected.labels).mean() > 0.97
    assert found.scores.dtype == np.float32
    assert 0 < np.abs(found.scores - expected.scores).max() < 0.05
    assert np.array_equal(half.predictor.predict(PIXELS).scores, expected.scores)
    assert half.network is half.predictor.network  # which shows attention


def test_a_precision_without_support_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'bfloat61'; did you mean 'bfloat16'"):
        dnlnet.load(run, precision="bfloat61")
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    with pytest.raises(ValueError, match="onnxruntime computes in float32"):
        dnlnet.load(run, backend="onnxruntime", precision="bfloat16")
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match=r"this CPU has no bfloat16 instructions, .* use float32"):
        dnlnet.load(run, precision="bfloat16")


def test_an_unknown_backend_is_refused_and_the_known_ones_are_named(run: Path) -> None:
    with pytest.raises(ValueError, match=r"'tensorrt'.*torch, onnxruntime, openvino"):
        dnlnet.load(run, backend="tensorrt")
