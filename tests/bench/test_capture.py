import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dnlnet.bench import capture
from dnlnet.bench.capture import bench_capture
from dnlnet.cli.main import app


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "measured_in_child", lambda module, task: {"plain": 5}.get(task["form"], 7))


@pytest.mark.usefixtures("no_child")
def test_what_is_kept_is_queries_and_keys_of_the_layers_asked_for() -> None:
    plain, every, last, ablated = bench_capture(28, rounds=1, threads=1)
    tokens, channels = 1 + 2 * 2, 384
    assert every.asked_bytes == every.kept_bytes == 12 * 2 * tokens * channels * 4
    assert last.asked_bytes == last.kept_bytes == 2 * tokens * channels * 4
    assert plain.kept_bytes == ablated.kept_bytes == 0
    assert (plain.peak_bytes, every.peak_bytes) == (0, 2)
    assert all(row.seconds > 0 for row in (plain, every, last, ablated))


@pytest.mark.usefixtures("no_child")
def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["bench", "capture", "--size", "28", "--rounds", "1", "--threads", "1", "--json", str(tmp_path / "a.json")],
    )
    assert result.exit_code == 0, result.output
    assert "all recorded" in result.output
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 4


def test_a_size_that_is_no_multiple_of_the_patch_is_refused() -> None:
    with pytest.raises(ValueError, match="size 500: expected a multiple of 14, the side of a patch, such as 504"):
        bench_capture(500)
