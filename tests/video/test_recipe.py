import json
import shutil
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.artifacts.model_file import find_model, read_model_file, write_model_file
from dnlnet.backbones.pixels import MEAN, Pixels
from dnlnet.cli.main import app
from dnlnet.engine.log import read_log
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.override import override
from dnlnet.registry import RECIPES, find_recipe, parse_recipe
from dnlnet.runs.train import train
from dnlnet.video.data.samples import TrainingClips
from dnlnet.video.network import view_logits
from dnlnet.video.predictor import VideoModel
from dnlnet.video.recipe import VideoRecipe
from observer import Recorder
from video_trees import moving_shapes, write_sound

TINY = [
    "model.backbone=slow_only_tiny",
    "model.weights=null",
    "model.dropout=0.0",
    "data.name=video_folder",
    "data.train=train",
    "data.test=val",
    "data.stride=2",
    "data.rate=30",
    "data.short_sides=[32, 32]",
    "data.crop=32",
    "data.flip=0.0",
    "optim.kind=adamw",
    "optim.lr=0.01",  # sgd needs a learning rate at which rounding affects the result
    "schedule.batch=16",
    "schedule.warmup=0",
    "training.frozen=[]",
    "training.frozen_statistics=false",
    "evaluation.clips=1",
    "evaluation.crops=1",
    "evaluation.short_side=32",
]


def tiny(iterations: int, *more: str) -> VideoRecipe:
    settings = [*TINY, f"schedule.iterations={iterations}", f"training.evaluate_every={iterations}", *more]
    return override(find_recipe("ucf6-r50-dnl"), settings)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return moving_shapes(tmp_path_factory.mktemp("videos") / "shapes", videos=16)


@pytest.fixture(scope="module")
def trained(shapes: Path) -> Path:
    train(tiny(60), shapes, shapes.parent / "run")
    return shapes.parent / "run"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def test_every_row_of_the_kinetics_table_has_a_recipe_and_a_small_one() -> None:
    recipes = {name: recipe for name, recipe in RECIPES.items() if recipe.task == "video"}
    rows = ["baseline", "nl", "nl_pairwise", "nl_unary", "dnl"]
    assert [name for name, recipe in recipes.items() if recipe.paper] == [f"kinetics-r50-{row}" for row in rows]
    assert {f"ucf6-r50-{row}" for row in rows} <= set(recipes)
    assert recipes["kinetics-r50-dnl"].paper.scores == {"top1": 76.31, "top5": 92.69}
    for recipe in recipes.values():
        assert parse_recipe(json.dumps(recipe.stored())).stored() == recipe.stored()


def test_the_kinetics_recipe_follows_the_slow_only_network() -> None:
    recipe = find_recipe("kinetics-r50-dnl")
    assert (recipe.data.frames, recipe.data.stride, recipe.data.short_sides, recipe.data.crop) == (
        8,
        8,
        (256, 320),
        224,
    )
    assert (recipe.evaluation.clips, recipe.evaluation.crops, recipe.evaluation.short_side) == (10, 3, 256)
    assert recipe.schedule.warmup / recipe.schedule.iterations == pytest.approx(34 / 196)
    assert recipe.settings().optim.nesterov
    with torch.device("meta"):
        model = recipe.build(400, pretrained=False)
    assert sum(isinstance(module, dnlnet.NonLocalBlock) for module in model.modules()) == 5
    assert all(m.settings.pool == 2 for m in model.modules() if isinstance(m, dnlnet.NonLocalBlock))


def test_motion_invisible_in_single_frames_is_learnt(trained: Path) -> None:
    evaluation = [event for event in read_log(trained) if event["event"] == "evaluation"][-1]
    assert evaluation["top1"] > 0.5  # single frames of the four classes look alike: at most 0.25 without motion
    assert sorted(evaluation["by_class"]) == ["down", "left", "right", "up"]
    assert evaluation["unreadable"] == 0


def test_eval_gives_the_training_scores_and_counts_unreadable_videos(
    trained: Path, shapes: Path, tmp_path: Path
) -> None:
    evaluation = [event for event in read_log(trained) if event["event"] == "evaluation"][-1]
    done = command("eval", trained, "--data", shapes, "--workers", 0, "--json", tmp_path / "scores.json")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "scores.json").read_text())["top1"] == evaluation["top1"]
    data = shutil.copytree(shapes, tmp_path / "broken")
    (data / "val" / "up" / "0.avi").write_bytes(b"")
    write_sound(data / "val" / "up" / "1.avi")
    done = command("eval", trained, "--data", data, "--workers", 0, "--json", tmp_path / "scores.json")
    assert done.exit_code == 0, done.output
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert (scores["videos"], len(scores["unreadable"])) == (62, 2)
    assert done.output.count("not counted:") == 2


def test_predict_prints_the_most_confident_classes_and_writes_all(
    trained: Path, shapes: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.avi").write_bytes(b"no video")
    videos = [shapes / "val" / "down" / "3.avi", tmp_path / "bad.avi"]
    done = command("predict", trained, *videos, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "1 done, 1 bad" in done.output
    assert "bad.avi" in done.output
    content = json.loads((tmp_path / "out" / "3.json").read_text())
    assert sum(content["classes"].values()) == pytest.approx(1, abs=1e-4)
    top = next(iter(content["classes"]))
    assert f"  {top}" in done.output
    assert "█" in done.output
    model = dnlnet.load(trained)
    assert isinstance(model.predictor, VideoModel)
    assert model.predict(videos[0]).top() == content["classes"]


def test_frames_in_memory_are_classified_like_their_file(trained: Path, shapes: Path) -> None:
    path, model = shapes / "val" / "down" / "3.avi", dnlnet.load(trained)
    with av.open(str(path)) as file:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    expected = model(path).scores
    images = [Image.fromarray(frame) for frame in frames]
    channels_last = torch.from_numpy(frames)
    for given in (frames, channels_last, channels_last.permute(0, 3, 1, 2), channels_last / 255, images):
        np.testing.assert_array_equal(model(given).scores, expected)
    batch = model(np.stack([frames, frames[::-1]]))
    np.testing.assert_array_equal(batch[0].scores, expected)
    np.testing.assert_array_equal(batch[1].scores, model(frames[::-1]).scores)
    np.testing.assert_array_equal([one.scores for one in model([path, frames])], [expected, expected])
    # At twice the frame rate, the clip takes every other frame and repeats the video.
    np.testing.assert_array_equal(model(frames, rate=60).scores, model(np.tile(frames[::2], (2, 1, 1, 1))).scores)
    assert model.attend(frames).plot().get_suptitle() == "video: ucf6-r50-dnl"


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        (np.zeros((32, 32, 3), np.uint8), r"got shape \(32, 32, 3\)"),
        (Image.new("RGB", (8, 8)), "Image"),
        (np.zeros((0, 32, 32, 3), np.uint8), "shape"),
        (np.zeros((4, 32, 32, 3), np.int64), "uint8"),
        (np.zeros((4, 32, 32, 2), np.uint8), "array"),
    ],
)
def test_other_objects_are_refused(trained: Path, given: object, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        dnlnet.load(trained).predict(given)


def test_attend_shows_the_maps_over_the_frames(trained: Path, shapes: Path, tmp_path: Path) -> None:
    video = shapes / "val" / "left" / "2.avi"
    done = command("attend", trained, video, "-o", tmp_path, "--query", "10,20,3")
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "2.json").read_text())
    assert [block["title"] for block in content["blocks"]] == ["ucf6-r50-dnl layer2.1", "ucf6-r50-dnl layer3.1"]
    assert content["blocks"][0]["queries"] == [{"frame": 2, "x": 10, "y": 20, "time": 2, "row": 2, "column": 1}]
    maps = np.load(tmp_path / "2.npz")
    assert maps["0/pairwise"].shape == (1, 8, 2, 2)  # keys are pooled in space, not in time
    np.testing.assert_allclose(maps["0/unary"].sum(), 1, rtol=1e-4)
    assert (tmp_path / "2.png").stat().st_size > 10_000
    for query, message in (("40,5", "outside the clip"), ("1,2,9", "frame 9"), ("1,2,3,4", "x,y,frame")):
        assert message in str(command("attend", trained, video, "-o", tmp_path, "--query", query).exception)
    page = tmp_path / "a.html"
    assert "images only" in str(command("attend", trained, video, "--page", page).exception)
    done = command("attend", trained, video, "-o", tmp_path / "both", "--page", page)
    assert "images only" in done.output
    assert len(list((tmp_path / "both").iterdir())) == 4
    assert not page.exists()


def test_attend_compares_models_with_the_same_frames(trained: Path, shapes: Path, tmp_path: Path) -> None:
    file = read_model_file(find_model(str(trained)))
    for side in (32, 48):
        recipe = override(file.recipe, [f"evaluation.short_side={side}"])
        write_model_file(tmp_path / f"{side}.safetensors", load_file(file.path), replace(file, recipe=recipe))
    video = shapes / "val" / "left" / "2.avi"
    alike, other = (
        ["attend", trained, video, "-o", tmp_path, "--against", tmp_path / f"{n}.safetensors"] for n in (32, 48)
    )
    assert command(*alike).exit_code == 0
    assert len(json.loads((tmp_path / "2.json").read_text())["blocks"]) == 4
    message = str(command(*other).exception)
    assert "at 48 pixels" in message
    assert "8 frames, 2 / 30 seconds apart, at 32 pixels" in message


def test_a_saved_video_model_can_be_loaded(trained: Path, shapes: Path, tmp_path: Path) -> None:
    model = dnlnet.load(trained)
    model.save_pretrained(tmp_path)
    again = dnlnet.TrainedModel.from_pretrained(tmp_path)
    video = shapes / "val" / "right" / "0.avi"
    assert np.array_equal(again.predict(video).scores, model.predict(video).scores)
    assert "video-classification" in (tmp_path / "README.md").read_text()


def test_resumed_run_equals_uninterrupted_run(shapes: Path, tmp_path: Path) -> None:
    recipe = tiny(4, "training.save_every=2", "schedule.batch=4", "training.evaluate_every=9")

    def stop(done: int) -> None:
        if done == 3:
            raise InterruptedError

    train(recipe, shapes, tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(recipe, shapes, tmp_path / "parts", progress=Recorder(stop))
    train(recipe, shapes, tmp_path / "parts")
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_unreadable_videos_are_reported_once_and_skipped(shapes: Path, tmp_path: Path) -> None:
    data = shutil.copytree(shapes, tmp_path / "data")
    (data / "train" / "up" / "0.avi").write_bytes(b"")
    recorder = Recorder()
    recipe = tiny(1)
    run = RunContext(data, progress=recorder)
    samples = recipe.training_samples(run, "train")
    assert isinstance(samples, TrainingClips)
    assert recorder.said == ["video_folder train: 64 videos to train on"]
    task = recipe.training_task(samples.videos.classes, run)
    model = recipe.build(4)
    index = next(n for n, video in enumerate(samples.videos.videos) if video.path.match("up/0.avi"))
    for epoch in range(2):
        losses = task.losses(model, samples.collate([samples[(index, epoch)]]))
        assert torch.isfinite(losses["loss"])
    assert len(recorder.said) == 2
    assert "up/0.avi" in recorder.said[1]


def test_logits_do_not_depend_on_the_number_of_views_per_batch(shapes: Path) -> None:
    recipe = tiny(1, "evaluation.clips=3", "evaluation.crops=2")
    validation = recipe.test_samples(shapes, recipe.data.test)
    views = validation[0].views
    assert views.shape == (6, 3, 8, 32, 32)
    model = recipe.build(4).eval()
    pixels = Pixels()
    with torch.no_grad():
        one_by_one = torch.cat([model(pixels.normalised(view[None])) for view in views])
        together = view_logits(lambda some: model(pixels.normalised(some)), views, views_per_batch=4)
    torch.testing.assert_close(together, one_by_one)
    torch.testing.assert_close(pixels.normalised(views)[2, 1], (views[2, 1].float() - MEAN[1]) / 57.12)


def test_invalid_settings_are_refused(shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only the needed frames"):
        tiny(1).training_samples(RunContext(shapes, unpacked=tmp_path), "train")
    with pytest.raises(ValueError, match="give a file"):
        tiny(1, "model.weights=imagenet").build(4)
    with pytest.raises(ValueError, match="unknown backbone"):
        tiny(1, "model.backbone=resnet50")
    with pytest.raises(ValueError, match="needs the folder"):
        find_recipe("ucf6-r50-dnl").training_samples(RunContext(), "train01")


def test_real_clips_can_be_trained_on_and_scored(real_data: Path) -> None:
    small = ["model.backbone=slow_only_tiny", "model.weights=null", "training.frozen=[]"]
    recipe = override(find_recipe("ucf6-r50-dnl"), small)
    root = real_data / "ucf101_6cls"
    data, validation = (
        recipe.training_samples(RunContext(root), recipe.data.train),
        recipe.test_samples(root, recipe.data.test),
    )
    assert (len(data), len(validation)) == (60, 30)
    task, model = recipe.training_task(data.videos.classes, RunContext()), recipe.build(6)
    assert torch.isfinite(task.losses(model, data.collate([data[(0, 0)], data[(59, 0)]]))["loss"])
    metric = task.metric()
    with torch.no_grad():
        task.score(model.eval(), validation.collate([validation[7]]), metric)
    assert metric.count == 1
