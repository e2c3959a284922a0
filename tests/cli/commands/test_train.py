import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.cli.main import app
from dnlnet.recipes.override import override, shorthands
from dnlnet.registry import find_recipe
from trees import folder_tree


def command(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
def test_a_folder_is_trained_and_scored_without_a_recipe_and_keeps_its_path_private(tmp_path: Path) -> None:
    data, run = folder_tree(tmp_path / "my_pictures"), tmp_path / "run"
    trained = command("train", "--data", data, "--out", run, "--iterations", 2, "--batch", 2, "--workers", 0)
    assert "the layout of folder: training folder-mbv2_frozen-dnl" in " ".join(trained.output.split())
    described = yaml.safe_load((run / "run.yaml").read_text())
    assert described["folder"] == str(data)
    assert described["recipe"]["schedule"]["iterations"] == 2
    scored = command("eval", run, "--workers", 0, "--json", tmp_path / "scores.json")
    assert f"data: {data}" in scored.output
    assert set(json.loads((tmp_path / "scores.json").read_text())["by_class"]) == {"sky", "road", "car"}
    dnlnet.load(run).save_pretrained(tmp_path / "shared")
    for path in (*run.glob("*.safetensors"), run / "report.md", run / "log.jsonl", *(tmp_path / "shared").iterdir()):
        assert str(tmp_path).encode() not in path.read_bytes(), path
    moved = data.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=r"my_pictures: .*--data"):
        command("eval", run)
    command("train", "--data", moved, "--out", run, "--iterations", 2, "--batch", 2, "--workers", 0)
    assert yaml.safe_load((run / "run.yaml").read_text())["folder"] == str(moved)


def test_flags_set_recipe_values() -> None:
    recipe = find_recipe("camvid-mbv2_tuned-dnl")
    short = override(recipe, shorthands(recipe, weights="none", iterations=92, batch=4, lr=0.5))
    assert short.model.weights is None
    assert (short.schedule.batch, short.optim.lr) == (4, 0.5)
    assert override(recipe, shorthands(recipe, precision="bfloat16")).training.precision == "bfloat16"
    assert (short.schedule.iterations, short.schedule.warmup, short.schedule.then[0].iterations) == (92, 5, 276)
    steps = find_recipe("coco-r50-dnl-c4")
    assert override(steps, shorthands(steps, iterations=120)).schedule.milestones == (80, 110)
    assert override(steps, shorthands(steps, weights="a: b.pth")).model.weights == "a: b.pth"


def test_a_setting_without_its_section_suggests_the_whole_key() -> None:
    with pytest.raises(ValueError, match=r"'iterations'.* schedule\.iterations"):
        override(find_recipe("camvid-mbv2-dnl"), ["iterations=5"])
