"""Detectors on frozen features: caching and resuming do not change a run, and features replace images exactly."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import dnlnet
from coco_trees import shapes_tree
from dnlnet.backbones import Backbone
from dnlnet.backbones.split import Lower, find_layers, upper_maps
from dnlnet.detection.network import Detector, ImageFeatures
from dnlnet.detection.schema import DetectorModel
from dnlnet.engine.log import read_log
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import RECIPES
from observer import Recorder

FROZEN = [name for name, one in RECIPES.items() if one.task == "detection" and "_frozen-" in name]
PLACES = {"c4_one": "c4", "c5_all": "c5", "c4c5_all": "c4c5"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(Backbone("resnet18", 32).body.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes_tree(tmp_path_factory.mktemp("shapes") / "coco", count=3)


def recipe(weights: Path, *settings: str) -> Recipe:
    small = [
        "model.backbone=resnet18",
        f"model.weights={weights}",
        "model.width=16",
        "model.box_width=16",
        "model.boxes=4",
        "model.proposals=8",
        "data.short_side=96",
        "data.long_side=128",
        "schedule.iterations=3",
        "schedule.batch=2",
        "schedule.warmup=1",
        "training.evaluate_every=3",
        "training.save_every=1",
    ]
    return dnlnet.override(dnlnet.find_recipe("coco-micro-mbv2_frozen-dnl-c4"), [*small, *settings])


@pytest.fixture(scope="module")
def cached(weights: Path, shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run with a cache."""
    run = tmp_path_factory.mktemp("runs") / "cached"
    dnlnet.train(recipe(weights), shapes, run)
    return run


def assert_same(first: Path, second: Path) -> None:
    ours, theirs = (load_file(run / "last.safetensors") for run in (first, second))
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("backbone", ["resnet18", "mobilenetv2"])
@pytest.mark.parametrize("placement", PLACES)
def test_a_detector_finds_the_same_in_images_and_in_their_features(backbone: str, placement: str) -> None:
    torch.manual_seed(0)
    model = DetectorModel(variant="dnl", preset="paper", placement=placement, width=16, box_width=16, proposals=8)
    network = Detector(Backbone(backbone, 32), 2, model).eval()
    network.roi_heads.score_thresh = 0.0
    images, sizes = [torch.rand(3, 60, 90), torch.rand(3, 64, 96)], [(60, 90), (128, 192)]
    batch, _ = network.transform(images)
    with torch.no_grad():
        maps = network.lower()(batch.tensors)
    features = [ImageFeatures([x[number] for x in maps], size) for number, size in enumerate(((60, 90), (64, 96)))]
    found, expected = network.detect(features, sizes), network.detect(images, sizes)
    assert len(expected[0]["boxes"]) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_losses_of_float16_features_equal_those_of_the_images_they_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = Detector(Backbone("resnet18", 32), 2, DetectorModel(variant="dnl", width=16, proposals=8, boxes=4))
    network.train().backbone.body.eval()
    target = {
        "boxes": torch.tensor([[5.0, 5, 40, 50]]),
        "labels": torch.tensor([2]),
        "masks": torch.ones(1, 64, 64, dtype=torch.uint8),
    }
    image = torch.rand(3, 64, 64)
    lower = network.lower().eval()
    batch, _ = network.transform([image])
    with torch.no_grad():
        features = ImageFeatures([x[0].half() for x in lower(batch.tensors)], (64, 64))
    place = network.backbone.place
    monkeypatch.setattr(
        network.backbone.body, "forward", lambda x: upper_maps(network.backbone.body, place, halved(lower(x)))
    )
    torch.manual_seed(1)
    expected = network([image], [target])
    torch.manual_seed(1)
    found = network([features], [target])
    assert len(expected) == 5
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def halved(maps: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.half().float() for x in maps]


def test_smaller_images_of_a_batch_are_padded_with_zeros() -> None:
    torch.manual_seed(0)
    network = Detector(Backbone("resnet18", 32), 2, DetectorModel(width=16, box_width=16, proposals=8)).eval()
    seen: list[list[torch.Tensor]] = []
    network.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        maps = [network.lower()(torch.rand(1, 3, side, 64)) for side in (32, 64)]
    network.detect([ImageFeatures([x[0] for x in one], (32, 64)) for one in maps], [(32, 64)] * 2)
    assert [tuple(x.shape) for x in seen[0]] == [(2, 64, 16, 16), (2, 128, 8, 8)]
    assert torch.equal(seen[0][0][0, :, :8], maps[0][0][0])
    assert not seen[0][0][0, :, 8:].any()


def test_layers_that_are_not_a_sequence_are_refused() -> None:
    with torch.device("meta"), pytest.raises(ValueError, match="hrnet_w18 is not a sequence of layers"):
        find_layers(Backbone("hrnet_w18"))


@pytest.mark.parametrize("backbone", ["resnet18", "mobilenetv2"])
def test_both_parts_have_all_maps_of_a_backbone(backbone: str) -> None:
    torch.manual_seed(0)
    whole, images = Backbone(backbone, 32).eval(), torch.rand(1, 3, 64, 96)
    expected = whole(images)
    for layer in find_layers(whole):
        if layer.level in (2, 3):
            found = upper_maps(whole, layer.name, Lower(whole, layer.name)(images))
            assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_training_with_and_without_a_cache_is_the_same(
    cached: Path, weights: Path, shapes: Path, tmp_path: Path
) -> None:
    dnlnet.train(recipe(weights, "training.cache=false"), shapes, tmp_path / "plain")
    assert_same(cached, tmp_path / "plain")
    ours, plain = (
        [event for event in read_log(run) if event["event"] == "train"] for run in (cached, tmp_path / "plain")
    )
    assert [event["loss_mask"] for event in ours] == [event["loss_mask"] for event in plain]
    assert not (tmp_path / "plain" / "cache").exists()


def test_resumed_run_equals_uninterrupted_run_and_shares_its_cache(
    cached: Path, weights: Path, shapes: Path, tmp_path: Path
) -> None:
    def stop(done: int) -> None:
        if done == 2:
            raise InterruptedError("power cut")

    shared = shutil.copytree(cached / "cache", tmp_path / "features")
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")}
    with pytest.raises(InterruptedError):
        dnlnet.train(recipe(weights), shapes, tmp_path / "run", cache=shared, progress=Recorder(stop))
    observed = Recorder()
    dnlnet.train(recipe(weights), shapes, tmp_path / "run", cache=shared, progress=observed)
    assert any("resuming from iteration 1 of 3" in text for text in observed.said)
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")} == before
    assert_same(cached, tmp_path / "run")


def test_only_what_follows_the_first_block_is_trained(cached: Path, weights: Path) -> None:
    kept, given = load_file(cached / "last.safetensors"), torch.load(weights)
    for name, tensor in given.items():
        if name.endswith(("weight", "running_mean")):
            same = torch.equal(kept[f"backbone.body.body.{name}"], tensor)
            assert same == (not name.startswith(("layer3", "layer4"))), name


def test_a_trained_detector_is_an_ordinary_model_file(cached: Path, shapes: Path) -> None:
    logged = dnlnet.load(cached).file.scores
    found = dnlnet.evaluate(cached, shapes)
    assert found is not None
    assert logged is not None
    assert found.values["box AP50"] == pytest.approx(logged["box AP50"], abs=5e-3)
    dnlnet.load(cached).predict(shapes / "val2017" / "000000000001.png")


def test_the_cache_holds_each_image_and_its_mirror_image(cached: Path) -> None:
    (about,) = (cached / "cache").rglob("about.json")
    assert json.loads(about.read_text())["short_side"] == 96
    entries = [path.stem.split("-", 1)[1] for path in (cached / "cache").rglob("*.safetensors")]
    assert sorted(entries) == ["128x96"] * 3 + ["128x96-flipped"] * 3


def test_seeds_and_variants_share_features_and_places_do_not(weights: Path) -> None:
    def key(*settings: str, seed: int = 0) -> str:
        from dnlnet.detection.data.features import Extractor

        chosen = recipe(weights, *settings)
        network = chosen.first_network(RunContext(seed=seed), 2)
        assert isinstance(network, Detector)
        return Extractor(network, chosen.data, {}).key

    assert key() == key(seed=1) == key("model.variant=nl") == key("model.variant=null", "model.width=8")
    assert len({key(), key("model.placement=c5_all"), key("data.long_side=160")}) == 3


@pytest.mark.parametrize("name", FROZEN)
def test_every_recipe_freezes_what_is_below_its_place(name: str) -> None:
    chosen = dnlnet.find_recipe(name)
    with torch.device("meta"):
        network = chosen.build(2, pretrained=False)
    assert isinstance(network, Detector)
    place = name.rsplit("-", 1)[1]
    assert PLACES[chosen.model.placement] == place
    frozen = {id(p) for p in network.lower().parameters()}
    assert frozen
    assert all(p.requires_grad == (id(p) not in frozen) for p in network.parameters())
    blocks = [module for module in network.modules() if isinstance(module, dnlnet.NonLocalBlock)]
    assert bool(blocks) == ("baseline" not in name)


def test_settings_that_contradict_frozen_layers_are_refused(weights: Path, shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training\.cache"):
        recipe(weights, "model.frozen=false")
    phase = "schedule.then=[{train: train2017, iterations: 3, lr: 0.001, unfrozen: [backbone.]}]"
    with pytest.raises(ValueError, match=r"model\.frozen=true .*cannot unfreeze"):
        recipe(weights, phase)
    with pytest.raises(ValueError, match=r"model\.weights"):
        dnlnet.train(recipe(weights, "model.weights=null"), shapes, tmp_path / "none")
    assert not (tmp_path / "none" / "cache").exists()
