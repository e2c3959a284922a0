import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dnlnet.bench import block as bench
from dnlnet.bench.block import BlockCost, describe_machine, measure_block
from dnlnet.bench.memory import peak_extra_bytes
from dnlnet.bench.timing import find_device
from dnlnet.cli import main as cli


def test_rows_hold_measurements_of_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    monkeypatch.setattr(bench, "MULTIPLY", 64)
    monkeypatch.setattr(
        bench, "peak_extra_bytes", lambda *_, **asked: (asked["form"], asked["training"], asked["batch"])
    )
    for batch, training in ((1, False), (3, True)):
        row = measure_block("dnl", "6x7", training=training, batch=batch, channels=8, rounds=2, threads=1)
        assert (row.size, row.batch, row.training) == ("6x7", batch, training)
        assert min(row.fused_seconds, row.explicit_seconds, row.limit_seconds) > 0
        assert min(row.time_ratio, row.control_ratio) > 0
        assert min(row.share_of_limit, row.share_of_single_limit) > 0
        assert (row.fused_bytes, row.explicit_bytes) == tuple(
            (form, row.training, row.batch) for form in ("fused", "explicit")
        )
        assert row.sdpa_seconds is None


def test_forms_in_bfloat16_are_compared_with_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    monkeypatch.setattr(bench, "MULTIPLY", 64)
    monkeypatch.setattr(bench, "peak_extra_bytes", lambda *_, **asked: (asked["form"], asked["precision"]))
    row = measure_block("dnl", "6x7", training=True, channels=8, rounds=2, threads=1, precision="bfloat16")
    assert row.float32_ratio > 0
    assert [row.fused_bytes, row.float32_bytes] == [("fused", "bfloat16"), ("float32", "bfloat16")]
    forms = ["fused", "explicit", "float32"]
    calls = bench.make_calls("dnl", 8, (6, 7), forms, training=False, precision="bfloat16")
    fused, explicit, exact = (calls[form]() for form in forms)
    assert not torch.equal(fused, exact)
    torch.testing.assert_close(fused, explicit, rtol=2**-7, atol=2**-7)
    torch.testing.assert_close(fused, exact, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("variant", ["dnl", "gc"])
def test_a_peer_computes_the_same(variant: str) -> None:
    calls = bench.make_calls(variant, 8, (6, 7), ["fused", "sdpa"], training=False, batch=2)
    torch.testing.assert_close(calls["fused"](), calls["sdpa"]())


def test_explicit_form_is_skipped_if_it_cannot_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "available_bytes", lambda: 10**6)
    assert not bench._explicit_fits("dnl", (600, 600))
    assert bench._explicit_fits("gc", (600, 600))
    monkeypatch.setattr(bench, "available_bytes", lambda: 10**9)
    assert bench._explicit_fits("dnl", (60, 60))
    assert not bench._explicit_fits("dnl", (60, 60), batch=8)


def test_memory_measurement_can_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    monkeypatch.setattr(bench, "MULTIPLY", 64)
    row = measure_block("gc", "6x7", training=True, channels=8, rounds=1, threads=1, memory=False)
    assert row.fused_bytes is row.explicit_bytes is None


def test_ratios_are_absent_without_the_explicit_form() -> None:
    row = BlockCost("s", 1, "dnl", True, 1.0, None, None, None, 0.5, 0.4, 0.5, 0.4, None, None, 10, None)
    assert row.memory_ratio is None


def test_a_form_twice_as_fast_in_every_round_has_the_ratio_one_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    seconds = {"fused": [1.0, 4.0, 2.0], "explicit": [2.0, 8.0, 4.0], "control": [2.2, 8.0, 3.0]}
    limits = {"stretch": [0.5, 0.4, 0.5], "single": [0.1, 0.1, 0.1]}
    monkeypatch.setattr(
        bench, "time_rounds", lambda calls, rounds: {name: (seconds | limits)[name] for name in calls}
    )
    row = measure_block("nl", "6x7", training=False, channels=8, rounds=3, threads=1, memory=False)
    assert (row.time_ratio, row.control_ratio, row.fused_seconds) == (0.5, 1.0, 1.0)
    # The series is one multiplication, so both shares are of the same work: 0.25 and 0.05 of the fused time.
    assert row.share_of_limit / row.share_of_single_limit == pytest.approx(0.25 / 0.05)


def test_the_control_of_a_long_call_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    monkeypatch.setattr(bench, "MULTIPLY", 64)
    monkeypatch.setattr(bench, "LONGEST_CONTROL", 0.0)
    row = measure_block("nl", "6x7", training=True, channels=8, rounds=1, threads=1, memory=False)
    assert row.time_ratio is not None
    assert row.control_ratio is None


def test_a_failed_measurement_reports_the_reason() -> None:
    with pytest.raises(OSError, match="failed: ValueError: unknown variant 'dnx'"):
        peak_extra_bytes("dnx", 8, (4, 4), training=False, threads=1)


def test_the_machine_is_described() -> None:
    assert "2 threads, torch" in describe_machine(2)


def test_a_missing_device_is_named() -> None:
    for name in ("gpu", "xpu:7", "cuda:99"):
        with pytest.raises(ValueError, match=rf"device '{name}' cannot be used here; expected one of cpu, cuda"):
            find_device(name)


def test_batches_and_peers_fit_80_columns_and_a_form_that_does_not_fit_in_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit = BlockCost(
        "128x256",
        1,
        "nl_pairwise",
        False,
        22.444,
        31.441,
        30.5,
        45.25,
        20.5,
        19.0,
        0.91,
        0.85,
        0.71,
        1.02,
        310e6,
        8732e6,
    )
    alone = BlockCost(
        "128x256", 8, "nl_pairwise", True, 48.395, None, None, None, 40.0, 39.0, 0.83, 0.81, None, None, 488e6, None
    )
    monkeypatch.setattr(bench, "measure_block", lambda *_, batch, **__: explicit if batch == 1 else alone)
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "block.json"
    arguments = ["bench", "block", "--variants", "nl_pairwise", "--sizes", "128x256", "--batch", "1,8", "--peers"]
    result = CliRunner().invoke(cli.app, [*arguments, "--json", str(path)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    cells = [line.replace("│", " ").split() for line in lines]
    assert ["128x256", "nl_pairwise", "fwd", "22,444", "31,441", "30,500", "45,250", "0.71"] in cells
    assert ["8", "x", "128x256", "nl_pairwise", "fwd", "+", "bwd", "48,395", "-", "-", "-", "-"] in cells
    assert ["128x256", "nl_pairwise", "fwd", "0.91", "0.85", "310", "8,732", "0.036"] in cells
    assert "noise: the explicit form against itself has ratios of 1.02 to 1.02" in lines
    assert "without the explicit form, which does not fit in memory: 8 x 128x256" in lines
    assert max(len(line) for line in lines if not line.startswith("written")) <= 80
    rows = json.loads(path.read_text())["rows"]
    assert [row["batch"] for row in rows] == [1, 1, 8, 8]
    assert rows[0]["flex_seconds"] == 45.25
    assert rows[2]["time_ratio"] is None


def test_a_small_temperature_makes_sharp_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    real = bench.NonLocalBlock
    monkeypatch.setattr(bench, "NonLocalBlock", lambda *a, **o: seen.append(o["temperature"]) or real(*a, **o))
    bench.make_calls("nl", 8, (4, 5), ["fused"], training=False, temperature=0.25)
    assert seen == [0.25]
