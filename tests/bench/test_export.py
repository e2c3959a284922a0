import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dnlnet.bench import export
from dnlnet.cli.main import app

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's exporters warn about themselves


def test_files_compute_what_the_network_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(export, "measured_in_child", lambda module, task: asked.append(task) or 7_000_000)
    arguments = ["--size", "48x80", "--forms", "dnlnet; onnx, blocked", "--rounds", "1", "--threads", "1"]
    result = CliRunner().invoke(
        app, ["bench", "export", "scenes-tiny-dnl", *arguments, "--json", str(tmp_path / "a.json")]
    )
    assert result.exit_code == 0, result.output
    assert [task["form"] for task in asked] == ["dnlnet", "onnx, blocked"]
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert all(row["seconds"] > 0 and row["peak_bytes"] == 7_000_000 for row in rows)
    assert 0 < rows[1]["difference"] < 1e-5


def test_what_a_child_measures_is_a_pass(tmp_path: Path) -> None:
    task = {"recipe": "scenes-tiny-dnl", "folder": str(tmp_path), "threads": 1, "form": "dnlnet", "size": [512, 512]}
    assert export.measured_in_child("dnlnet.bench.export", task) > 3 * 512 * 512 * 4  # more than another picture


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scenes-tiny-dnl", "--forms", "onnx, block"], "did you mean 'onnx, blocked'"),
        (["kinetics-r50-dnl"], "takes clips"),
    ],
)
def test_bad_wishes_are_refused_in_words(arguments: list[str], message: str) -> None:
    assert message in str(CliRunner().invoke(app, ["bench", "export", *arguments]).exception)
