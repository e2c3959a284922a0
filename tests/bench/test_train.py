import json
from pathlib import Path

from typer.testing import CliRunner

from dnlnet.bench.train import PARTS, bench_train
from dnlnet.cli.main import app
from dnlnet.recipes.override import override
from dnlnet.registry import find_recipe

SMALL = ["data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=4"]


def test_every_form_is_measured_and_the_parts_are_within_the_whole() -> None:
    rows = list(bench_train(override(find_recipe("scenes-tiny-dnl"), SMALL), rounds=2, threads=1, compiled=False))
    assert [row.form for row in rows] == ["plain loop", "plain loop, channels last", "engine"]
    for row in rows[:2]:
        assert row.parts is not None
        assert set(row.parts) == set(PARTS)
        assert 0 < sum(row.parts.values()) <= 1.01 * 2 / row.images_per_second
    assert rows[2].parts is None
    assert rows[0].ratio == 1
    assert rows[2].ratio > 0


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    arguments = ["bench", "train", "--rounds", "1", "--threads", "1", "--no-compiled", "--processes", "2", *settings]
    result = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "train.json")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "engine" in result.output
    rows = json.loads((tmp_path / "train.json").read_text())["rows"]
    several = ["engine, 1 process", "engine, 2 processes"]
    assert [row["form"] for row in rows] == ["plain loop", "plain loop, channels last", "engine", *several]
    assert all(row["images_per_second"] > 0 for row in rows)
