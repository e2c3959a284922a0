import json
from pathlib import Path

import pytest

from benchmark_scripts import load_script, run_script
from dnlnet.bench.memory import measure_in_child

export = load_script("export")
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's exporters warn about themselves


def test_files_compute_the_same_as_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(export, "measure_in_child", lambda script, task: asked.append(task) or 7_000_000)
    options = ["--size", "48x80", "--forms", "dnlnet; onnx, blocked", "--rounds", 1, "--threads", 1]
    run_script(export, monkeypatch, "scenes-tiny-dnl", *options, "--json", tmp_path / "a.json")
    assert [task["form"] for task in asked] == ["dnlnet", "onnx, blocked"]
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert all(row["seconds"] > 0 and row["peak_bytes"] == 7_000_000 for row in rows)
    assert 0 < rows[1]["difference"] < 1e-5


def test_a_child_measures_a_whole_pass(tmp_path: Path) -> None:
    task = {"recipe": "scenes-tiny-dnl", "folder": str(tmp_path), "threads": 1, "form": "dnlnet", "size": [512, 512]}
    assert measure_in_child([export.__file__, "--child"], task) > 3 * 512 * 512 * 4  # more than another image


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["scenes-tiny-dnl", "--forms", "onnx, block"], "onnx, blocked"),
        (["kinetics-r50-dnl"], "takes clips"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], fact: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_script(export, monkeypatch, *arguments)
    assert fact in capsys.readouterr().err
