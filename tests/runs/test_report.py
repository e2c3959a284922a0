"""Reports of runs with unusual names or without scores."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from dnlnet.runs.report import write_report

EVIL = "<img src=x onerror=alert(1)> | ![a](https://evil.example/a.png)\n```\n"


def test_names_in_a_report_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        "".join(
            json.dumps(event) + "\n"
            for event in (
                {"event": "train", "iteration": 1, "loss": 1.0, "lr": 0.1},
                {"event": "evaluation", "iteration": 1, "miou": 0.5, "by_class": {EVIL: 0.5, "$x^$": None}},
            )
        )
    )
    run = {"recipe": {"name": EVIL, "note": EVIL}, "versions": {"torch": "2"}, "seed": 0, "commit": None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    page = MarkdownIt("commonmark").enable("table").render(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.count("<img") == 2  # the two curves
    assert page.count("evil.example") == page.count("&lt;img src=x onerror=alert(1)&gt; | ![a](https://evil.example")
    assert page.count("<code") == 1
    assert page.count("<tr>") == 3 + 3


def test_a_report_without_a_score_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"recipe": {"name": "mine"}, "versions": {}, "seed": 0, "commit": None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(recipe))
    nothing = {"event": "evaluation", "miou": None, "accuracy": None, "by_class": {"sky": None}}
    some = {"event": "evaluation", "miou": 0.5, "accuracy": 0.75, "by_class": {"sky": 0.5}}
    log: list[dict[str, Any]] = [{"event": "train", "iteration": n, "main": 1.0, "lr": 0.1} for n in (1, 2)]
    monkeypatch.setattr("dnlnet.runs.report.read_log", lambda _: log)
    log.append({**nothing, "iteration": 1})
    text = write_report(tmp_path).read_text()
    assert "No evaluation has a score: nothing in the evaluated data is labelled." in text
    assert (tmp_path / "scores.png").exists()
    log += [{**some, "iteration": 2}, {**nothing, "iteration": 3}]
    text = write_report(tmp_path).read_text()
    assert "| best | 2 | 0.5000 | 0.7500 |" in text
    assert "| last | 3 | - | - |" in text


def test_a_damaged_line_that_is_still_json_is_skipped(tmp_path: Path) -> None:
    lines = [json.dumps({"event": "train", "iteration": n, "main": 1.0, "lr": 0.1}) for n in (1, 2, 3)]
    lines[1] = lines[1].replace("main", "mbin")
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"recipe": {"name": "mine"}, "seed": 0, "versionr": {}}))
    assert "3 iterations, seed 0; unknown versions; commit unknown." in write_report(tmp_path).read_text()
