"""`dnlnet verify --device`: checks that pass, fail, crash, or find no device."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.bench import equalities
from dnlnet.cli.main import app


def test_every_variant_is_compared_and_equal() -> None:
    check = equalities._measure("float64", "cpu")
    assert check.cases == 4 * len(VARIANTS)
    assert check.holds
    assert 0 < check.error < 1e-13  # never compared with itself


@pytest.mark.parametrize("wrong", [lambda x: 1.001 * x, lambda x: x + torch.nan])
def test_a_wrong_kernel_is_detected(wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = NonLocalBlock.forward

    def broken(self: NonLocalBlock, x: Tensor) -> Tensor:
        return wrong(forward(self, x)) if x.dim() == 5 else forward(self, x)

    monkeypatch.setattr(NonLocalBlock, "forward", broken)
    check = equalities._measure("float32", "cpu")
    assert not check.holds
    assert not check.skipped


def test_a_crash_is_a_row_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], -signal.SIGILL, "", "")
    monkeypatch.setattr(equalities.subprocess, "run", lambda *_, **__: ended)
    check = equalities.run_check("bfloat16", "cpu")
    assert not check.holds
    assert "ended by SIGILL" in check.note
    assert "ONEDNN_MAX_CPU_ISA" in check.note


def test_the_command_prints_a_markdown_table_and_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {name: equalities.CHECKS[name] for name in ("float64", "memory")}
    monkeypatch.setattr(equalities, "CHECKS", checks)
    done = CliRunner().invoke(app, ["verify", "--device", "cpu", "--json", str(tmp_path / "a.json")])
    assert done.exit_code == 0, done.output
    assert "| fused = explicit in float64 | 28 |" in done.output
    assert "agrees with its equations on cpu" in done.output
    written = json.loads((tmp_path / "a.json").read_text())
    assert [check["holds"] for check in written["checks"]] == [True, True]
    monkeypatch.setattr(equalities, "run_check", lambda name, device: equalities.Check(name, 1, 2.0, 1.0))
    done = CliRunner().invoke(app, ["verify", "--device", "cpu"])
    assert done.exit_code == 1
    assert "2 of 2 checks failed" in done.output


@pytest.mark.parametrize("device", ["gpu", "mps"])
def test_missing_devices_are_refused(device: str) -> None:
    with pytest.raises(ValueError, match="cannot be used here; expected one of cpu, cuda, mps, xpu"):
        equalities.describe_device(device)
