from pathlib import Path
from typing import Any

import pytest
import yaml

from dnlnet.analysis.report import write_report


def test_a_report_without_a_score_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"recipe": {"name": "mine"}, "versions": {}, "seed": 0, "commit": None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(recipe))
    nothing = {"event": "evaluation", "miou": None, "accuracy": None, "by_class": {"sky": None}}
    some = {"event": "evaluation", "miou": 0.5, "accuracy": 0.75, "by_class": {"sky": 0.5}}
    log: list[dict[str, Any]] = [{"event": "train", "iteration": n, "main": 1.0, "lr": 0.1} for n in (1, 2)]
    monkeypatch.setattr("dnlnet.analysis.report.read_log", lambda _: log)
    log.append({**nothing, "iteration": 1})
    text = write_report(tmp_path).read_text()
    assert "No evaluation has a score: nothing in the evaluated data is labelled." in text
    assert (tmp_path / "scores.png").exists()
    log += [{**some, "iteration": 2}, {**nothing, "iteration": 3}]
    text = write_report(tmp_path).read_text()
    assert "| best | 2 | 0.5000 | 0.7500 |" in text
    assert "| last | 3 | - | - |" in text
