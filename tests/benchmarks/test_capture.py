import json
from pathlib import Path

import pytest

from benchmark_scripts import load_script, run_script

capture = load_script("capture")


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "measure_in_child", lambda script, task: {"plain": 5}.get(task["form"], 7))


@pytest.mark.usefixtures("no_child")
def test_only_queries_and_keys_of_the_selected_layers_are_kept() -> None:
    plain, every, last, ablated = capture.bench_capture(28, rounds=1, threads=1)
    tokens, channels = 1 + 2 * 2, 384
    assert every.asked_bytes == every.kept_bytes == 12 * 2 * tokens * channels * 4
    assert last.asked_bytes == last.kept_bytes == 2 * tokens * channels * 4
    assert plain.kept_bytes == ablated.kept_bytes == 0
    assert (plain.peak_bytes, every.peak_bytes) == (0, 2)
    assert all(row.seconds > 0 for row in (plain, every, last, ablated))


@pytest.mark.usefixtures("no_child")
def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--size", 28, "--rounds", 1, "--threads", 1, "--json", tmp_path / "a.json"]
    run_script(capture, monkeypatch, *arguments)
    assert "all recorded" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 4


def test_a_size_that_is_not_a_multiple_of_the_patch_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_script(capture, monkeypatch, "--size", 500)
    message = capsys.readouterr().err
    assert "500" in message
    assert "504" in message
