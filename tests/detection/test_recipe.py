"""Detection recipes, from training to scores, predictions and attention."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as coco_mask
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import dnlnet
from coco_trees import coco_tree, shapes_tree
from dnlnet.artifacts.weights import load_network
from dnlnet.backbones import Backbone
from dnlnet.cli.main import app
from dnlnet.data.classes import Classes
from dnlnet.detection.data.coco import open_coco
from dnlnet.detection.network import Detector
from dnlnet.detection.outputs import DetectionOutputs
from dnlnet.detection.predictor import DetectionModel, Detections
from dnlnet.detection.recipe import DetectionRecipe
from dnlnet.detection.schema import DetectorModel, InstanceData
from dnlnet.engine.log import read_log
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.override import override
from dnlnet.registry import RECIPES, find_recipe, parse_recipe
from dnlnet.runs.train import train
from observer import Recorder

CHANNELS = 64  # a quarter of the default, to save time
SMALL = [
    "model.backbone=resnet18",
    "model.weights=null",
    "model.boxes=8",
    "model.proposals=40",
    "model.anchor=32",
    f"model.width={CHANNELS}",
    "data.short_side=96",
    "data.long_side=128",
    "training.frozen=[]",
    "training.channels_last=false",
    "optim.lr=0.02",
    "schedule.kind=step",
    "schedule.warmup_start=0.3",
]


def small(iterations: int, *more: str) -> DetectionRecipe:
    settings = [
        *SMALL,
        f"schedule.iterations={iterations}",
        f"schedule.warmup={min(100, iterations)}",
        f"training.evaluate_every={iterations}",
        *more,
    ]
    return override(find_recipe("coco-micro-dnl-c4"), settings)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes_tree(tmp_path_factory.mktemp("shapes") / "coco", count=2)


@pytest.fixture(scope="module")
def trained(shapes: Path) -> Path:
    """Train a detector until it overfits two images."""
    recipe = small(60, "schedule.milestones=[46]", "schedule.warmup=10", "schedule.batch=2", "optim.lr=0.04")
    train(recipe, shapes, shapes.parent / "run")
    return shapes.parent / "run"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def test_every_row_of_both_tables_has_a_recipe_and_a_small_one() -> None:
    names = [name for name, recipe in RECIPES.items() if recipe.task == "detection" and "_frozen" not in name]
    rows = ["baseline", *(f"{v}-c4" for v in ("nl", "nl_pairwise", "nl_unary", "dnl", "gc"))]
    rows += [f"{v}-{place}" for v in ("nl", "dnl", "gc") for place in ("c5", "c4c5")]
    assert sorted(names) == sorted(f"{stem}-{row}" for stem in ("coco-r50", "coco-micro") for row in rows)
    best = find_recipe("coco-r50-dnl-c4c5").paper.scores
    assert (best["box AP"], best["mask AP75"]) == (41.4, 39.8)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.task == "detection"])
def test_every_recipe_builds_its_detector_and_survives_json(name: str) -> None:
    recipe = find_recipe(name)
    assert parse_recipe(json.dumps(recipe.stored())).stored() == recipe.stored()
    with torch.device("meta"):
        model = recipe.build(80, pretrained=False)
    released = (1.0, False, 0.3) if name.startswith("coco-r50") else (1 / 9, True, 0.0)
    assert (model.roi_heads.box_beta, model.rpn.border_anchors, model.rpn.min_overlap) == released
    for prefix in recipe.training.frozen:
        assert any(parameter.startswith(prefix) for parameter, _ in model.named_parameters())


@pytest.mark.parametrize(("after", "place"), [("false", "layer3.4.act3"), ("true", "layer3.4")])
def test_a_setting_puts_blocks_before_or_after_the_activation(after: str, place: str) -> None:
    recipe = find_recipe("coco-r50-dnl-c4")
    assert "model.after_activation=true" in recipe.paper.remark
    with torch.device("meta"):
        model = override(recipe, [f"model.after_activation={after}"]).build(80, pretrained=False)
    (name,) = (name for name, module in model.named_modules() if isinstance(module, dnlnet.NonLocalBlock))
    assert name == f"backbone.body.body.{place}.non_local"


def test_two_images_are_overfitted(trained: Path) -> None:
    evaluation = [event for event in read_log(trained) if event["event"] == "evaluation"][-1]
    assert evaluation["box AP50"] > 0.9
    assert evaluation["mask AP50"] > 0.9
    losses = [event for event in read_log(trained) if event["event"] == "train"]
    assert losses[-1]["loss_classifier"] < losses[0]["loss_classifier"] / 3


def test_eval_gives_the_training_scores_in_one_and_two_processes(trained: Path, shapes: Path, tmp_path: Path) -> None:
    evaluation = [event for event in read_log(trained) if event["event"] == "evaluation"][-1]
    scores, results = tmp_path / "scores.json", tmp_path / "results.json"
    done = command("eval", trained, "--data", shapes, "--workers", 0, "--json", scores, "--results", results)
    assert done.exit_code == 0, done.output
    alone = json.loads(scores.read_text())
    assert alone["box AP"] == pytest.approx(evaluation["box AP"], abs=1e-6)
    found = json.loads(results.read_text())
    assert {entry["image_id"] for entry in found} == {1, 2}
    assert {entry["category_id"] for entry in found} <= {3, 9}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command_line = ["eval", str(trained), f"--data={shapes}", "--workers=0", f"--json={scores}"]
    subprocess.run(
        [*launch, "-m", "dnlnet", *command_line],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    assert json.loads(scores.read_text()) == alone


def test_predict_draws_objects_and_writes_their_masks(trained: Path, shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command("predict", trained, shapes / "val2017", "-o", out)
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    truth = open_coco(shapes, "val2017")
    assert {entry["image_id"] for entry in results} == {1, 2}
    first = [entry for entry in results if entry["image_id"] == 1]
    assert {entry["category"] for entry in first} <= {
        truth.classes.names[one.label - 1] for one in truth.images[0].instances
    }
    name = "000000000001"
    with Image.open(out / "overlay" / f"{name}.png") as overlay:
        assert overlay.size == (128, 96)
    masks = sorted((out / "masks" / name).iterdir())
    assert len(masks) == len(first)
    with Image.open(masks[0]) as mask:
        decoded = coco_mask.decode(first[0]["segmentation"])
        np.testing.assert_array_equal(np.asarray(mask) > 0, decoded > 0)
    again = command("predict", trained, shapes / "val2017", "-o", out)
    assert "2 done before" in again.output


def test_folded_norms_and_channels_last_find_the_same_objects(trained: Path, shapes: Path) -> None:
    model = dnlnet.load(trained)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.network.modules())
    plain = DetectionModel(load_network(model.file), model.classes, model.predictor.data)
    image = shapes / "val2017" / "000000000002.png"
    found, expected = model.predict(image), plain.predict(image)
    assert len(found) >= 2
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.boxes, expected.boxes, atol=0.01)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-3)
    assert (found.masks != expected.masks).mean() < 1e-3


def test_attend_shows_the_block_inside_the_backbone(trained: Path, shapes: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    image = shapes / "val2017" / "000000000001.png"
    done = command("attend", trained, image, "--query", "100,50", "-o", out, "--page", page)
    assert done.exit_code == 0, done.output
    content = json.loads((out / "000000000001.json").read_text())
    (view,) = content["views"]
    assert (view["queries_map"], view["covered"]) == ([6, 8], [1.0, 1.0])
    assert (view["queries"][0]["row"], view["queries"][0]["column"]) == (3, 6)
    refused = command("attend", trained, image, "--data", shapes, "-o", out)
    assert "--data" in str(refused.exception)


def test_resumed_run_equals_uninterrupted_run(shapes: Path, tmp_path: Path) -> None:
    """Batches of similar shapes, random flips and sampled boxes are the same."""
    tiny = ("data.short_side=64", "data.long_side=96", "model.anchor=16", "model.boxes=4", "model.proposals=8")
    recipe = small(2, "schedule.batch=2", "training.save_every=1", "data.test=null", *tiny)

    def stop(done: int) -> None:
        if done == 2:
            raise InterruptedError("power cut")

    train(recipe, shapes, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(recipe, shapes, tmp_path / "parts", progress=Recorder(stop))
    train(recipe, shapes, tmp_path / "parts")
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_images_without_objects_and_with_crowds_are_trained_and_scored(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "coco")
    recipe = small(1, "schedule.batch=2", "data.test=train2017", "model.proposals=4")
    recorder = Recorder()
    run = RunContext(root, progress=recorder)
    data = recipe.training_samples(run, recipe.data.train)
    validation = recipe.test_samples(root, recipe.data.test)
    assert (len(data), len(validation)) == (2, 3)
    left_out = ", ".join(f"{reason} {count}" for reason, count in data.images.left_out.items())
    assert "crowds 1" in left_out
    assert recorder.said == [f"coco train2017: 2 images to train on; not used for training: {left_out}"]
    task = recipe.training_task(validation.images.classes, run, validation)
    model = recipe.build(2)
    batch = data.collate([data[(0, 0)], data[(1, 0)]])
    losses = task.losses(model.train(), batch)
    assert all(torch.isfinite(loss) for loss in losses.values())
    metric = task.metric()
    for index in range(3):
        task.score(model.eval(), validation.collate([validation[index]]), metric)
    assert 0 <= metric.scores()["box AP"] <= 1


def test_a_users_folder_in_cocos_format_is_a_data_set(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "coco")
    for split in ("train2017", "val2017"):
        (root / "annotations" / f"instances_{split}.json").rename(root / "annotations" / f"{split[:-4]}.json")
        (root / split).rename(root / split[:-4])
    recipe = small(1, "data.name=coco_folder", "data.train=train", "data.test=val")
    assert len(recipe.training_samples(RunContext(root), "train")) == 2
    done = command("data", "check", "coco_folder", root)
    assert done.exit_code == 0, done.output


def test_an_image_without_detections_has_an_empty_result() -> None:
    torch.manual_seed(0)
    detector = Detector(Backbone("resnet18", 32), 2, DetectorModel(variant=None, proposals=4))
    model = DetectionModel(
        detector,
        Classes(["cat", "dog"], [(255, 0, 0), (0, 255, 0)], [3, 9]),
        InstanceData(short_side=64, long_side=96),
    )
    found = model.predict(np.zeros((40, 60, 3), np.uint8), threshold=1.0)
    assert isinstance(found, Detections)
    assert len(found) == 0
    assert found.results("a") == []
    assert np.array_equal(found.overlay(), found.image)
    assert (found.label_map() == 255).all()
    assert DetectionOutputs(model, 0.7).say(found) == "nothing above 0.7"
    two = replace(found, labels=np.array([1, 0]), scores=np.array([0.98, 0.71]))
    assert DetectionOutputs(model).say(two) == "dog 0.98, cat 0.71"


def test_options_of_other_tasks_are_refused(run: Path, tmp_path: Path) -> None:
    assert "--results" in str(command("eval", run, "--results", tmp_path / "r.json").exception)
    assert "detection" in str(command("complexity", "coco-r50-dnl-c4").exception)
