import json
from pathlib import Path

import pytest
import torch

from benchmark_scripts import load_script, run_script
from dnlnet import NonLocalBlock
from dnlnet.attention import half


def test_every_way_has_errors_and_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("bfloat16")
    torch.manual_seed(0)
    block, x = NonLocalBlock(16, temperature=0.01), torch.randn(1, 16, 8, 9)
    monkeypatch.setattr(script, "_cases", lambda: [("small", block, x)])
    monkeypatch.setattr(script, "SIDE", 6)
    monkeypatch.setattr(half, "has_bfloat16", lambda: True)
    run_script(script, monkeypatch, "--rounds", 1, "--threads", 1, "--json", tmp_path / "ways.json")
    rows = {row["way"]: row for row in json.loads((tmp_path / "ways.json").read_text())["rows"]}
    assert set(rows) == {*script.WAYS, "operator"}
    assert all(row["time"] > 0 for row in rows.values())
    errors = {way: row["errors"]["small"] for way, row in rows.items()}
    assert all(0 < error < 0.2 for found in errors.values() for error in found)
    assert errors["float32 logits"][0] < errors["rounded logits"][0]
