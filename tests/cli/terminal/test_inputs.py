import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.cli.main import app
from dnlnet.cli.terminal.inputs import open_inputs
from dnlnet.data.images import read_image_file
from trees import write_image


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_image_at_a_url_is_predicted_and_named_after_it(run: Path, address: str, tmp_path: Path) -> None:
    write_image(tmp_path / "a photo.png", size=(40, 56))
    given = f"{address}/a%20photo.png"
    result = command("predict", run, given, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == f"downloading {given}"
    assert lines[1].startswith(f"{given}: ")
    assert read_image_file(tmp_path / "out" / "labels" / "a photo.png").shape == (40, 56, 3)
    assert "1 done before" in command("predict", run, given, "-o", tmp_path / "out").output


def test_an_image_at_a_url_gets_a_figure(run: Path, address: str, tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", size=(40, 56))
    result = command("attend", run, f"{address}/a.png", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "a.json").read_text())["width"] == 56


def test_a_problem_with_a_downloaded_file_names_its_url(run: Path, address: str, tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", size=(40, 56))
    (tmp_path / "text.png").write_text("no image")
    result = command("predict", run, f"{address}/text.png", tmp_path / "a.png", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert f"{address}/text.png: " in result.output
    twice = command("predict", run, f"{address}/a.png", f"{address}/a.png?again", "-o", tmp_path / "other")
    assert str(twice.exception).startswith(f"{address}/a.png and {address}/a.png?again ")
    with (
        pytest.raises(FileNotFoundError, match=f"{address}/none.png: "),
        open_inputs([f"{address}/none.png"]),
    ):
        pass


def test_python_explains_how_to_predict_an_image_at_a_url(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\('https://example.org/a.jpg'\)"):
        dnlnet.predict(run, ["https://example.org/a.jpg"], tmp_path)
