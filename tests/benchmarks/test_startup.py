import json
from pathlib import Path

import pytest

from benchmark_scripts import load_script, run_script

startup = load_script("startup")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


@pytest.fixture(autouse=True)
def quick(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the stages by processes that write their letter into a file, and the page cache by another letter."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    commands = {startup.BASELINE: ["-c", code, str(log), "a"], "load": ["-c", code, str(log), "b"]}
    monkeypatch.setattr(startup, "stages", lambda *_: commands)
    monkeypatch.setattr(startup, "drop_from_page_cache", lambda: log.write_text(log.read_text() + "-"))


def test_every_round_runs_each_stage_once_in_a_fresh_process(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_script(startup, monkeypatch, "--rounds", 2, "--cold", 1, "--json", tmp_path / "a.json")
    assert log.read_text() == "ab" + "abab" + "-a-b"
    assert "load" in capsys.readouterr().out
    first, second = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert first["ratio"] == first["cpu_ratio"] == first["cold_ratio"] == 1
    assert second["ratio"] == pytest.approx(second["seconds"] / first["seconds"])
    assert second["cpu_seconds"] > 0


def test_a_failing_stage_stops_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="no such model: x"):
        startup.run(["-c", "raise SystemExit('no such model: x')"])
