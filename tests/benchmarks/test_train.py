import json
from pathlib import Path

import pytest

from benchmark_scripts import load_script, run_script
from dnlnet.recipes.override import override
from dnlnet.registry import find_recipe

train = load_script("train")
SMALL = ["data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=4"]


def test_every_form_is_measured_and_the_parts_take_less_than_the_whole() -> None:
    recipe = override(find_recipe("scenes-tiny-dnl"), SMALL)
    rows = list(train.bench_train(recipe, None, cache=None, rounds=2, threads=1, compiled=False))
    assert [row.form for row in rows] == ["plain loop", "plain loop, channels last", "engine"]
    for row in rows[:2]:
        assert row.parts is not None
        assert set(row.parts) == set(train.PARTS)
        assert 0 < sum(row.parts.values()) <= 1.01 * 2 / row.images_per_second
    assert rows[2].parts is None
    assert rows[0].ratio == 1
    assert rows[2].ratio > 0


def test_the_script_prints_a_table_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    options = ["--rounds", 1, "--threads", 1, "--no-compiled", "--processes", 2, *settings]
    run_script(train, monkeypatch, *options, "--json", tmp_path / "train.json")
    assert "engine" in capsys.readouterr().out
    rows = json.loads((tmp_path / "train.json").read_text())["rows"]
    several = ["engine, 1 process", "engine, 2 processes"]
    assert [row["form"] for row in rows] == ["plain loop", "plain loop, channels last", "engine", *several]
    assert all(row["images_per_second"] > 0 for row in rows)
