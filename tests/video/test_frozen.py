"""Clips on frozen features: caching and resuming do not change a run, and features are those of the tested pixels."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file

import dnlnet
from dnlnet.backbones import Backbone
from dnlnet.engine.log import read_log
from dnlnet.progress import SILENT
from dnlnet.recipes.context import RunContext
from dnlnet.video.data.features import Crop, FeatureClips, FeatureViews
from dnlnet.video.data.samples import TestViews
from dnlnet.video.frozen import FrozenClassifier
from dnlnet.video.recipe import VideoRecipe
from dnlnet.video.schema import FrozenModel
from observer import Recorder
from video_trees import moving_shapes, video_folder_tree, write_video

SMALL = [
    "model.width=8",
    "data.name=video_folder",
    "data.train=train",
    "data.test=val",
    "data.frames=3",
    "data.stride=3",
    "data.rate=30",
    "data.short_sides=[32, 32]",
    "data.crop=32",
    "schedule.iterations=4",
    "schedule.batch=4",
    "schedule.warmup=1",
    "training.evaluate_every=4",
    "training.save_every=2",
    "evaluation.clips=2",
    "evaluation.short_side=32",
]


def recipe(*settings: str) -> VideoRecipe:
    chosen = dnlnet.override(dnlnet.find_recipe("ucf6-mbv2_frozen-dnl"), [*SMALL, *settings])
    assert isinstance(chosen, VideoRecipe)
    return chosen


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return moving_shapes(tmp_path_factory.mktemp("videos") / "shapes", videos=2)


@pytest.fixture(scope="module")
def cached(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run with a cache."""
    run = tmp_path_factory.mktemp("runs") / "cached"
    dnlnet.train(recipe(), data, run, progress=SILENT)
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "last.safetensors")


def assert_same(run: Path, other: Path) -> None:
    ours, theirs = weights(run), weights(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_training_with_and_without_a_cache_is_the_same(cached: Path, data: Path, tmp_path: Path) -> None:
    dnlnet.train(recipe("training.cache=false"), data, tmp_path / "plain", progress=SILENT)
    ours, theirs = ([event for event in read_log(run) if "loss" in event] for run in (cached, tmp_path / "plain"))
    assert [event["loss"] for event in ours] == [event["loss"] for event in theirs]
    assert_same(cached, tmp_path / "plain")
    assert not (tmp_path / "plain" / "cache").exists()


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(cached: Path, data: Path, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int) -> None:
        if done == 3:
            raise StoppedError

    shared = shutil.copytree(cached / "cache", tmp_path / "features")
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")}
    assert len(before) == 8 * 2 + 8  # training videos are also mirrored
    with pytest.raises(StoppedError):
        dnlnet.train(recipe(), data, tmp_path / "run", cache=shared, progress=Recorder(stop))
    observed = Recorder()
    dnlnet.train(recipe(), data, tmp_path / "run", cache=shared, progress=observed)
    assert any("resuming from iteration 2 of 4" in text for text in observed.said)
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")} == before
    assert_same(cached, tmp_path / "run")


@pytest.mark.parametrize("variant", [None, "nl", "nl_pairwise", "nl_unary", "dnl", "gc"])
def test_clips_and_their_features_give_the_same_logits(variant: str | None) -> None:
    torch.manual_seed(0)
    model = FrozenModel(variant=variant, width=8, backbone="resnet18")
    network = FrozenClassifier(Backbone("resnet18", 32), 3, model).eval()
    clips = torch.rand(2, 3, 4, 64, 96)
    with torch.no_grad():
        features = network.features(clips)
        assert features.maps.shape == (2, 512, 4, 2, 3)
        assert torch.equal(network(clips), network(features))
        single = network.backbone(clips[1, :, 2][None])[-1][0]
    torch.testing.assert_close(features.maps[1, :, 2], single)


@pytest.mark.parametrize("crops", [1, 3])
def test_features_are_those_of_the_pixels_that_testing_sees(crops: int, data: Path, tmp_path: Path) -> None:
    wide = recipe(f"evaluation.crops={crops}")
    rng = np.random.default_rng(0)
    for name, frames in (("long", 25), ("short", 4)):  # the short one is repeated
        images = [rng.integers(0, 255, (40, 64, 3), np.uint8) for _ in range(frames)]
        write_video(tmp_path / "val" / "a" / f"{name}.avi", images)
    write_video(tmp_path / "val" / "b" / "other.avi", 12)
    run = RunContext(tmp_path, cache=tmp_path / "cache")
    ours, theirs = wide.validation_samples(run, "val"), wide.test_samples(tmp_path, "val")
    assert isinstance(ours, FeatureViews)
    assert isinstance(theirs, TestViews)
    network = wide.first_network(run, 2)
    assert isinstance(network, FrozenClassifier)
    for index in range(3):
        found, pixels = ours[index], theirs[index]
        assert (found.label, found.name, len(found.views)) == (pixels.label, pixels.name, 2 * crops)
        with torch.no_grad():
            expected = network.eval().features(wide.data.pixels().normalised(pixels.views)).maps
        torch.testing.assert_close(found.views.float(), expected, atol=2e-2, rtol=2e-2)


def test_training_clips_are_consecutive_frames_of_one_crop(data: Path) -> None:
    chosen = recipe()
    run = RunContext(data)
    clips = chosen.training_samples(run, "train")
    assert isinstance(clips, FeatureClips)
    flipped = 0
    for index in range(len(clips)):
        sample = clips[(index, 5)]
        entry = clips.videos.videos[index]
        assert (sample.label, sample.name) == (entry.label, str(entry.path))
        assert torch.equal(sample.clip, clips[(index, 5)].clip)
        places = [
            (mirrored, start)
            for mirrored in (False, True)
            for (maps,) in [clips.source(entry.path, Crop(0, mirrored))]
            for start in range(len(maps) - 2)
            if torch.equal(maps[start : start + 3].transpose(0, 1), sample.clip)
        ]
        assert places
        flipped += places[0][0]
    assert 0 < flipped < len(clips)


def test_unreadable_videos_are_skipped_in_training_and_counted_in_testing(data: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(data, tmp_path / "data"))
    for split in ("train", "val"):
        (root / split / "up" / "0.avi").write_bytes(b"no video")
    observed = Recorder()
    dnlnet.train(recipe(), root, tmp_path / "run", progress=observed)
    (evaluation,) = [event for event in read_log(tmp_path / "run") if event["event"] == "evaluation"]
    assert (evaluation["samples"], evaluation["unreadable"]) == (7, 1)
    assert any("up/0.avi: cannot be read" in text for text in observed.said)


def test_a_model_on_frozen_features_is_an_ordinary_model_file(cached: Path, data: Path, tmp_path: Path) -> None:
    scores = dnlnet.evaluate(cached, data, progress=SILENT)
    assert scores is not None
    assert scores.content["videos"] == 8
    video = data / "val" / "down" / "0.avi"
    model = dnlnet.load(cached)
    assert sum(model.predict(video).scores) == pytest.approx(1)
    dnlnet.attend(cached, [video], out=tmp_path / "maps", progress=SILENT)
    with np.load(tmp_path / "maps" / "0.npz") as maps:
        assert maps["0/pairwise"].shape[1:] == (3, 1, 1)
    exported = dnlnet.export(cached, tmp_path / "model.pt2", "torch")
    assert exported.largest < 1e-4


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.aligned=false", r"set data\.aligned=true.*got aligned=false"),
        ("data.short_sides=[32, 40]", r"short_sides=\[32, 40\]"),
        ("training.frozen=[]", r"must have backbone\."),
        ("schedule.then=[{train: train, iterations: 3, lr: 0.1, unfrozen: [backbone.]}]", "no phase"),
        ("model.network=mine", "unknown model.network 'mine'"),
    ],
)
def test_settings_that_do_not_suit_frozen_features_are_refused(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(setting)


def test_random_weights_have_no_features(data: Path) -> None:
    with pytest.raises(ValueError, match="need a trained backbone"):
        recipe("model.weights=null").training_samples(RunContext(data), "train")


def test_a_folder_of_frames_is_cached_by_its_content(tmp_path: Path) -> None:
    """A change of one frame computes the features of that video again, and of no other."""
    tree = video_folder_tree(tmp_path / "tree")
    messages = Recorder()
    settings = recipe("training.cache=true")
    dnlnet.train(settings, tree, tmp_path / "first", cache=tmp_path / "cache", progress=messages)
    before = set((tmp_path / "cache").rglob("*.safetensors"))
    frame = next(path for path in sorted(tree.rglob("train/*/*/*")) if path.is_file())
    with Image.open(frame) as picture:
        ImageOps.invert(picture.convert("RGB")).save(frame)
    dnlnet.train(settings, tree, tmp_path / "second", cache=tmp_path / "cache", progress=messages)
    added = {path.name.split("-")[0] for path in set((tmp_path / "cache").rglob("*.safetensors")) - before}
    assert before
    assert len(added) == 1
