"""A task is one folder and one row: a task from outside works fully, and other modules do not mention any task."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet import registry
from dnlnet.backbones import BACKBONES, BackboneRow
from dnlnet.cli.main import app
from dnlnet.data.catalog import DataSet
from dnlnet.segmentation.data.folder import folder
from shapes.data import draw_shapes
from shapes.recipe import RECIPES
from trees import folder_tree

SOURCE = Path(dnlnet.__file__).parent
FOLDERS = ("segmentation", "detection", "video")


def command(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    dnlnet.register_task(RECIPES)
    yield
    del registry.TASKS["shapes"]
    for recipe in RECIPES:
        del registry.RECIPES[recipe.name]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_shapes(tmp_path_factory.mktemp("data") / "shapes")


@pytest.fixture(scope="module")
def trained(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "shapes"
    command("train", "shapes-dnl", "--data", shapes, "--out", run, "--workers", 0, "--set", "optim.lr=0.05")
    return run


def test_an_external_task_is_trained_and_resumes(trained: Path, shapes: Path) -> None:
    assert (trained / "report.md").read_text().count("| accuracy |") >= 1
    assert yaml.safe_load((trained / "run.yaml").read_text())["recipe"]["task"] == "shapes"
    before = load_file(trained / "last.safetensors")
    command("train", "shapes-dnl", "--data", shapes, "--out", trained, "--workers", 0, "--set", "optim.lr=0.05")
    after = load_file(trained / "last.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_it_is_scored(trained: Path, shapes: Path, tmp_path: Path) -> None:
    result = command("eval", trained, "--data", shapes, "--workers", 0, "--json", tmp_path / "scores.json")
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert set(scores["by_class"]) == {"disc", "square"}
    assert "shapes-dnl after 8 iterations" in result.output
    assert scores["accuracy"] == dnlnet.load(trained).file.scores["accuracy"]
    found = dnlnet.evaluate(trained, shapes)
    assert found is not None
    assert found.values == {"accuracy": scores["accuracy"]}


def test_it_predicts_and_refuses_options_of_other_tasks(trained: Path, shapes: Path, tmp_path: Path) -> None:
    command("predict", trained, shapes / "val", "-o", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "disc" / "0.json").read_text())
    assert written["shape"] == dnlnet.load(trained).predict(shapes / "val" / "disc" / "0.png")
    with pytest.raises(ValueError, match=r"--threshold.* shapes"):
        dnlnet.predict(trained, [shapes], tmp_path / "other", threshold=0.5)
    with pytest.raises(ValueError, match=r"--window.* shapes"):
        dnlnet.evaluate(trained, shapes, window=5)


def test_it_shows_its_attention(trained: Path, shapes: Path, tmp_path: Path) -> None:
    image = shapes / "val" / "disc" / "0.png"
    command("attend", trained, image, "-o", tmp_path / "maps", "--page", tmp_path / "page.html")
    with np.load(tmp_path / "maps" / "0.npz") as maps:
        assert maps["0/pairwise"].shape == (1, 8, 8)
    assert "shapes-dnl" in (tmp_path / "page.html").read_text()


def test_it_is_exported_and_described(trained: Path, tmp_path: Path) -> None:
    options = ["--format", "onnx", "--with-maps", "0.5,0.5", "--dynamic", "batch"]
    command("export", trained, "-o", tmp_path / "shapes.onnx", *options)
    described = yaml.safe_load(command("info", tmp_path / "shapes.onnx").output)
    assert list(described["outputs"]) == ["logits", "pairwise", "unary"]
    assert yaml.safe_load(command("info", trained).output)["kind"] == "a shapes model of dnlnet"


def test_it_has_a_card_and_recipes(trained: Path) -> None:
    card = dnlnet.load(trained).generate_model_card(name="me/shapes")
    assert "pipeline_tag: image-classification" in card.content
    assert "A shapes network on layers of its own with a `dnl` block" in card.text
    assert "shapes-baseline" in command("recipes", "list", "shapes-*").output
    (row,) = [line for line in command("recipes", "list").output.splitlines() if line.startswith("shapes ")]
    assert row.split()[-3:] == ["baseline,", "nl,", "dnl"]
    assert "shapes-nl" in command("recipes", "show", "shapes-nl").output
    assert dnlnet.list_recipes("shapes-*") == ["shapes-baseline", "shapes-nl", "shapes-dnl"]
    assert dnlnet.create_model("shapes-dnl")(torch.rand(1, 3, 32, 32)).shape == (1, 2)
    assert "shapes-dnl" in command("complexity", "shapes-dnl").output


def test_its_data_are_checked(shapes: Path) -> None:
    output = command("data", "check", "shapes", shapes).output
    assert "shapes train: 12 pictures" in output
    assert "0 problems" in output
    assert "shapes: {train,val}/<class>/*.png" in command("data", "list").output


def test_names_that_are_taken_are_refused() -> None:
    with pytest.raises(ValueError, match="'shapes'"):
        dnlnet.register_task(RECIPES)
    with pytest.raises(ValueError, match="'camvid'"):
        dnlnet.register_data_set("segmentation", DataSet("camvid", (), folder, ""))
    with pytest.raises(ValueError, match="'resnet50'"):
        dnlnet.register_backbone("resnet50", BACKBONES["resnet50"])


@pytest.mark.usefixtures("registries")
def test_an_external_data_set_is_trained_on(tmp_path: Path) -> None:
    dnlnet.register_data_set("segmentation", DataSet("mine", ("train", "val"), folder, "images/ and masks/"))
    settings = ["data.name=mine", "data.crop=[16, 16]", "schedule.iterations=1", "schedule.batch=2"]
    recipe = dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), settings)
    outcome = dnlnet.train(recipe, folder_tree(tmp_path / "data"), tmp_path / "run")
    assert outcome.finished
    assert dnlnet.load(tmp_path / "run").classes.names == ("sky", "road", "car")


@pytest.mark.usefixtures("registries")
def test_an_external_backbone_is_built() -> None:
    dnlnet.register_backbone("resnet26", BackboneRow("resnet26", (8, 16, 32), r"layer\d\.\d+"))
    recipe = dnlnet.override(dnlnet.find_recipe("camvid-mbv2-dnl"), ["model.backbone=resnet26"])
    with torch.device("meta"):
        network = dnlnet.create_model(recipe)
    assert sum(parameter.numel() for parameter in network.parameters()) > 10_000_000


def test_no_module_elsewhere_imports_a_task() -> None:
    """Each converter produces one task and is in the folder of that task."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in elsewhere()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dnlnet.")
        for task in [(node.module or "").split(".")[1]]
        if task in FOLDERS and path.relative_to(SOURCE).parts[:2] != ("conversion", task)
    ]
    assert not found


def elsewhere() -> list[Path]:
    """Return every file outside the three task folders and `registry.py`."""
    return [
        path
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in FOLDERS and path != SOURCE / "registry.py"
    ]


def test_no_other_module_contains_a_task_name() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in elsewhere()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in FOLDERS
    ]
    assert not found


def test_no_other_module_checks_the_type_of_a_recipe_or_model() -> None:
    kinds = {
        node.name
        for name in FOLDERS
        for path in (SOURCE / name).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert {"SegmentationRecipe", "Detector", "VideoModel"} <= kinds
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in elsewhere()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
        and any(isinstance(part, ast.Name) and part.id in kinds for part in ast.walk(node.args[1]))
    ]
    assert not found
