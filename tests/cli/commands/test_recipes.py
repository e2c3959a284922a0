import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.registry import RECIPES

RUN = CliRunner()


def test_recipes_are_listed_with_the_papers_scores_and_ours_separately() -> None:
    done = RUN.invoke(app, ["recipes", "list", "ade20k-r101-*"], env={"COLUMNS": "160"})
    assert done.exit_code == 0
    row = next(line for line in done.output.splitlines() if "ade20k-r101-dnl" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "ade20k-r101-dnl",
        "150,000",
        "520x520",
        "val 45.97",
        "-",
    ]
    assert "camvid" not in done.output


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_names_are_never_split_over_lines(columns: int) -> None:
    done = RUN.invoke(app, ["recipes", "list", "*"], env={"COLUMNS": str(columns)})
    assert set(done.output.split()) >= set(RECIPES)
    assert max(map(len, done.output.splitlines())) <= columns


def test_the_default_list_has_one_row_per_family() -> None:
    done = RUN.invoke(app, ["recipes", "list"], env={"COLUMNS": "160"})
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.output.splitlines() if "│" in line]
    families = {row[0]: row[-1] for row in rows if row[0]}
    assert set(families) == {"-".join(name.split("-")[:2]) for name in RECIPES}
    assert families["camvid-mbv2_frozen"] == "all"
    assert families["cityscapes-r101"] == "all but gc"
    assert families["ade20k-r101"] == "nl, dnl"


def test_the_list_is_written_as_json(tmp_path: Path) -> None:
    RUN.invoke(app, ["recipes", "list", "--json", str(tmp_path / "r.json")], catch_exceptions=False)
    assert [recipe["name"] for recipe in json.loads((tmp_path / "r.json").read_text())] == list(RECIPES)


def test_a_recipe_is_shown_with_values_replaced() -> None:
    done = RUN.invoke(app, ["recipes", "show", "camvid-mbv2-dnl", "--set", "optim.lr=0.5", "--set", "data.flip=0"])
    shown = yaml.safe_load(done.output)
    assert shown["optim"]["lr"] == 0.5
    assert shown["data"]["flip"] == 0
    assert shown["model"]["variant"] == "dnl"


def test_a_wrong_key_ends_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="'momentum'"):
        RUN.invoke(app, ["recipes", "show", "camvid-mbv2-dnl", "--set", "optim.momentm=0.5"], catch_exceptions=False)


def test_complexity_is_printed_next_to_the_papers(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    done = RUN.invoke(app, ["complexity", "--json", str(path)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert "71,484,904" in done.output
    assert "71.485 " in done.output
    rows = json.loads(path.read_text())["rows"]
    assert [row["parameters"] for row in rows] == [70_959_590, 71_484_391, 71_484_904]
    assert [row["paper"]["macs"] for row in rows] == [691.06, 765.07, 765.16]
    assert [row["seconds"] for row in rows] == [None] * 3


def test_complexity_of_video_networks_equals_the_published_values(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    RUN.invoke(app, ["complexity", "kinetics-r50-baseline", "--json", str(path)], catch_exceptions=False)
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["size"], row["parameters"]) == ([8, 256, 256], 32_454_096)
    assert row["macs"] == pytest.approx(54.52e9, rel=1e-4)


def test_latency_is_shown_on_request() -> None:
    arguments = ["complexity", "scenes-tiny-dnl", "--latency"]
    done = RUN.invoke(app, arguments, env={"COLUMNS": "160"}, catch_exceptions=False)
    assert "Seconds per image or clip" in done.output
