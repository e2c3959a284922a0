import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.cli.main import app
from dnlnet.lens.show.panels import save_figure
from dnlnet.signals import exit_on_stop_signals
from trees import truncate, write_image


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.jpg", seed=1, size=(40, 56))
    return tmp_path / "a.jpg"


def attend(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["attend", *map(str, arguments)])


def test_figures_maps_and_a_page_are_written(run: Path, other_run: Path, photo: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "explore.html"
    result = attend(
        run, photo, "--query", "10,20", "--query", "55,0", "--against", other_run, "-o", out, "--page", page
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {"a.png", "a.pdf", "a.npz", "a.json"}
    content = json.loads((out / "a.json").read_text())
    assert [view["title"] for view in content["views"]] == ["scenes-tiny-dnl", "scenes-tiny-nl"]
    query = content["views"][0]["queries"][0]
    assert (query["x"], query["y"], query["row"], query["column"]) == (10, 20, 5, 2)
    assert query["predicted"] in dnlnet.load(run).classes.names
    with np.load(out / "a.npz") as maps:
        assert maps["0/pairwise"].shape == (2, 10, 14)
        np.testing.assert_allclose(maps["1/unary"].sum(), 1, rtol=1e-5)
    assert "<html" in page.read_text()[:200]


def test_points_and_a_folder_are_selected_by_default(
    run: Path, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = attend(run, photo)
    assert result.exit_code == 0
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert folder.name in result.output
    assert json.loads((folder / "a.json").read_text())["views"][0]["queries"]


def test_a_signal_leaves_all_files_of_an_image_or_none(
    run: Path, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_and_stop(*arguments: object) -> None:
        save_figure(*arguments)
        signal.raise_signal(signal.SIGTERM)

    write_image(tmp_path / "second.png")
    monkeypatch.setattr("dnlnet.lens.show.attend_files.save_figure", save_and_stop)
    with exit_on_stop_signals():
        result = attend(run, photo, tmp_path / "second.png", "-o", tmp_path / "out")
    assert result.exit_code == 128 + signal.SIGTERM
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", ".npz", ".pdf", ".png"]


def test_a_large_image_is_shrunk(run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (120, 60), "green").save(tmp_path / "wide.png")
    result = attend(run, tmp_path / "wide.png", "-o", tmp_path / "out", "--max-pixels", 1800)
    assert "120 x 60" in result.output
    assert "60 x 30" in result.output
    assert json.loads((tmp_path / "out" / "wide.json").read_text())["width"] == 60


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["-o", "OUT", "--query", "10"], ["--query 10", "x,y"]),
        (["-o", "OUT", "--query", "1.5,2"], ["--query 1.5,2", "x,y"]),
        (["-o", "OUT", "--query", "56,0"], ["x=56, y=0", "56 x 40"]),
    ],
)
def test_bad_options_are_reported_and_nothing_is_written(
    arguments: list[str], facts: list[str], run: Path, photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = attend(run, photo, *(str(out) if a == "OUT" else a for a in arguments))
    assert isinstance(result.exception, ValueError)
    assert all(fact in str(result.exception) for fact in facts), result.exception
    assert not out.exists()


def test_bad_images_do_not_stop_the_others_and_are_listed(run: Path, photo: Path, tmp_path: Path) -> None:
    truncate(photo)
    page = tmp_path / "explore.html"
    only_bad = attend(run, photo, "-o", tmp_path / "out", "--page", page)
    assert only_bad.exit_code == 2
    assert only_bad.output.splitlines()[-1].startswith(f"not done: {photo}: cannot be read")
    assert not page.exists()
    write_image(tmp_path / "thin.png", size=(1, 30))
    write_image(tmp_path / f"{'l' * 251}.png")  # no room for the suffix of its results
    os.mkfifo(tmp_path / "pipe.png")
    result = attend(run, tmp_path, "-o", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert "written: 1 x png" in result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"thin.{end}" for end in ("png", "pdf", "npz", "json")
    }
    pipe, cut, long = result.output.splitlines()[-3:]
    assert "pipe.png: is a pipe" in pipe
    assert "a.jpg: cannot be read" in cut
    assert "its results cannot be written: File name too long" in long
    again = attend(run, tmp_path, "-o", tmp_path / "out")  # its own figures are skipped
    assert "left out: " in again.output
    assert "written: 1 x png" in again.output


def test_consistency_has_a_row_per_model_and_one_for_chance(run: Path, other_run: Path, tmp_path: Path) -> None:
    target, figure = tmp_path / "c.json", tmp_path / "c.png"
    result = CliRunner().invoke(
        app,
        [
            "consistency",
            *map(str, [run, other_run, "--images", 3, "--width", 2, "--json", target, "--picture", figure]),
        ],
        env={"COLUMNS": "120"},
    )
    assert result.exit_code == 0, result.output
    assert "scenes-tiny-dnl" in result.output
    content = json.loads(target.read_text())
    assert list(content["rows"]) == ["scenes-tiny-dnl", "scenes-tiny-nl", "random"]
    assert content["rows"]["random"]["pair_within"]["images"] == 3
    assert len(content["images"]) == 3
    mean = sum(image["scenes-tiny-nl"]["pair_within"] for image in content["images"]) / 3
    assert content["rows"]["scenes-tiny-nl"]["pair_within"]["mean"] == pytest.approx(mean)
    with Image.open(figure) as image:
        image.load()


def test_two_files_of_one_model_have_separate_rows(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    result = CliRunner().invoke(
        app, ["consistency", str(run), str(run / "last.safetensors"), "--images", "1", "--json", str(target)]
    )
    assert result.exit_code == 0, result.output
    assert len(json.loads(target.read_text())["rows"]) == 3


TINY = "timm:vit_tiny_patch16_224"


def test_a_transformer_has_a_figure_of_some_layers_all_maps_and_a_page(photo: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "explore.html"
    result = attend(TINY, photo, "--weights", "none", "--query", "10,20", "-o", out, "--page", page)
    assert result.exit_code == 0, result.output
    assert "figure: layers 2, 5, 8, 11 of the 12 of timm:vit_tiny_patch16_224 are shown" in result.output
    assert "page: the mean over heads is shown" in result.output
    assert "its weights are random (--weights none)" in result.output
    assert "sees images of 56 x 40 pixels as 64 x 48, multiples of 16" in result.output
    views = json.loads((out / "a.json").read_text())["views"]
    assert [view["layer"] for view in views] == [f"{number} (blocks.{number}.attn)" for number in range(12)]
    with np.load(out / "a.npz") as maps:
        np.testing.assert_allclose(maps["11/unary"].sum(), 1, rtol=1e-5)
    assert "In this page" in page.read_text()


def test_layers_and_heads_are_selected_and_compared_with_dnlnet_models(
    run: Path, photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = attend(
        TINY, photo, "--weights", "none", "--layers", "5,blocks.8.attn", "--heads", "1", "--against", run, "-o", out
    )
    assert result.exit_code == 0, result.output
    assert "are shown" not in result.output
    titles = [view["title"] for view in json.loads((out / "a.json").read_text())["views"]]
    transformer = [f"{TINY}: layer {number} (blocks.{number}.attn), head 1" for number in (5, 8)]
    assert titles == [*transformer, "scenes-tiny-dnl"]


def test_a_page_of_many_images_has_fewer_layers(photo: Path, tmp_path: Path) -> None:
    for number in range(7):
        write_image(tmp_path / f"b{number}.png", size=(32, 32))
    page = tmp_path / "explore.html"
    result = attend(TINY, tmp_path, "--weights", "none", "--page", page)
    assert result.exit_code == 0, result.output
    assert "page: layers 2, 5, 8, 11 of the 12 of timm:vit_tiny_patch16_224 are shown" in result.output
    assert "layers 2, 5, 8, 11 of the 12" in page.read_text()
    assert page.stat().st_size < 4_000_000


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ([TINY, "--weights", "none", "--layers", "5,,8"], "--layers 5,,8"),
        ([TINY, "--weights", "none", "--heads", "most"], "--heads most"),
        ([TINY, "--weights", "none", "--layers", "12"], "layer 12"),
        ([TINY, "--weights", "none", "--heads", "3"], "head 3"),
        ([TINY, "--weights", "none", "--data", "."], "--data"),
        (["timm:resnet18", "--weights", "none"], "timm:resnet18"),
        (["timm:vit_tinny_patch16_224"], "'vit_tiny_patch16_224'"),
        (["street", "--layers", "3"], "--layers"),
    ],
)
def test_bad_options_for_transformers_are_reported_and_nothing_is_written(
    arguments: list[str], fact: str, photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = attend(arguments[0], photo, *arguments[1:], "-o", out)
    assert isinstance(result.exception, ValueError)
    assert fact in str(result.exception)
    assert not out.exists()
