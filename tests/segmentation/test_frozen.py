"""Heads on frozen features: caching and resuming do not change a run, and feature crops match image crops."""

import json
import shutil
from collections import Counter
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

import dnlnet
from dnlnet.backbones import Backbone
from dnlnet.backbones.pixels import normalised
from dnlnet.data.problems import BadFileError
from dnlnet.data.scenes import CLASSES, scene
from dnlnet.engine.log import read_log
from dnlnet.progress import SILENT
from dnlnet.recipes import backbone, features
from dnlnet.recipes.features import FeatureCache
from dnlnet.recipes.recipe import Recipe
from dnlnet.segmentation.data.features import Extractor, FeatureCrops, WholeFeatures
from dnlnet.segmentation.data.folder import folder
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.recipe import _grid_size
from dnlnet.segmentation.schema import View
from dnlnet.segmentation.stages import Features, Grid, join_stages
from observer import Recorder

GRID = Grid((8, 16, 32))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(Backbone("resnet18", 32).body.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write scenes of several sizes, not all multiples of the stride."""
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", 6), ("val", 2)):
        for part in ("images", "masks"):
            (root / part / split).mkdir(parents=True)
        for number in range(count):
            pixels, labels = scene((len(split), number), size=(64, 72 + 4 * number))
            image = Image.fromarray((255 * pixels).astype(np.uint8).transpose(1, 2, 0))
            image.save(root / "images" / split / f"{number}.png")
            Image.fromarray(labels.astype(np.uint8)).save(root / "masks" / split / f"{number}.png")
    (root / "classes.yaml").write_text(f"names: [{', '.join(CLASSES.names)}]\n")
    return root


def recipe(weights: Path, *settings: str) -> Recipe:
    small = [
        "model.backbone=resnet18",
        f"model.weights={weights}",
        "model.width=8",
        "data.crop=[48, 48]",
        "data.views=[1.0, 0.75]",
        "schedule.iterations=4",
        "schedule.batch=2",
        "schedule.warmup=1",
        "training.evaluate_every=4",
        "training.save_every=2",
    ]
    return dnlnet.override(dnlnet.find_recipe("folder-mbv2_frozen-dnl"), [*small, *settings])


@pytest.fixture(scope="module")
def cached(weights: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run with a cache."""
    run = tmp_path_factory.mktemp("runs") / "cached"
    dnlnet.train(recipe(weights), data, run)
    return run


def extractor(weights: Path, stages: tuple[int, ...] = (1, 2, 3)) -> Extractor:
    backbone = Backbone("resnet18", 32)
    backbone.body.load_state_dict(torch.load(weights))
    return Extractor(FrozenSegmentor(backbone, 2, None, stages=stages, width=1), {"backbone": "resnet18"})


def test_features_in_bfloat16_have_their_own_key(weights: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = FrozenSegmentor(Backbone("resnet18", 32), 2, None, stages=(1, 2), width=1)
    full, image = Extractor(network, {}), next((data / "images").rglob("*.png"))
    assert full.key == Extractor(network, {}, "float32").key
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    half = Extractor(network, {}, "bfloat16")
    assert half.key != full.key
    for found, expected in zip(half(image, View(1.0)), full(image, View(1.0)), strict=True):
        assert found.dtype == torch.float16
        assert 0 < (found - expected).float().norm() < 0.1 * expected.float().norm()
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: False)
    assert Extractor(network, {}, "bfloat16").key == full.key  # a GPU may train in bfloat16


def losses(run: Path) -> list[float]:
    return [event["main"] for event in read_log(run) if event["event"] == "train"]


def test_training_with_and_without_a_cache_is_the_same(
    cached: Path, weights: Path, data: Path, tmp_path: Path
) -> None:
    dnlnet.train(recipe(weights, "training.cache=false"), data, tmp_path / "plain")
    assert losses(cached) == losses(tmp_path / "plain")
    ours, plain = (load_file(run / "last.safetensors") for run in (cached, tmp_path / "plain"))
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    assert not (tmp_path / "plain" / "cache").exists()


def test_a_run_builds_loads_and_folds_its_backbone_once(
    weights: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    build, load, fold = Backbone.__init__, backbone.load_weights, features.fold_batch_norms

    def building(built: Backbone, *args: Any, **options: Any) -> None:
        build(built, *args, **options)
        counts["on meta" if next(built.parameters()).is_meta else "built"] += 1

    def loading(*args: Any) -> Any:
        counts["loaded"] += 1
        return load(*args)

    def folding(*args: Any) -> Any:
        counts["folded"] += 1
        return fold(*args)

    monkeypatch.setattr(Backbone, "__init__", building)
    monkeypatch.setattr(backbone, "load_weights", loading)
    monkeypatch.setattr(features, "fold_batch_norms", folding)
    dnlnet.train(recipe(weights), data, tmp_path / "run")
    assert counts == {"built": 1, "on meta": 1, "loaded": 1, "folded": 1}  # on meta, to estimate the memory


def test_resumed_run_equals_uninterrupted_run_and_shares_its_cache(
    cached: Path, weights: Path, data: Path, tmp_path: Path
) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int) -> None:
        if done == 3:
            raise StoppedError

    shared = shutil.copytree(cached / "cache", tmp_path / "features")
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")}
    observed = Recorder()
    with pytest.raises(StoppedError):
        dnlnet.train(recipe(weights), data, tmp_path / "run", cache=shared, progress=Recorder(stop))
    dnlnet.train(recipe(weights), data, tmp_path / "run", cache=shared, progress=observed)
    assert any("resuming from iteration 2 of 4" in text for text in observed.said)
    assert any("24 maps" in text for text in observed.said)
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*.safetensors")} == before
    ours, whole = (load_file(run / "last.safetensors") for run in (tmp_path / "run", cached))
    assert all(torch.equal(ours[name], whole[name]) for name in whole)


def test_detail_is_trained_without_changing_the_attention(
    cached: Path, weights: Path, data: Path, tmp_path: Path
) -> None:
    trained = cached / "last.safetensors"
    fine = ["model.stages=[0, 1, 2, 3]", "model.detail=6", "training.frozen=['backbone.', 'mix.', 'block.']"]
    observed = Recorder()
    run = tmp_path / "fine"
    dnlnet.train(recipe(trained, "model.whole=true", *fine), data, run, progress=observed)
    assert any(
        "whole:" in text and "missing (detail.0.weight" in text and "1 misshapen (classifier.weight" in text
        for text in observed.said
    )
    ours, theirs = load_file(run / "last.safetensors"), load_file(trained)
    kept = [name for name in theirs if name.startswith(("backbone.", "mix.", "block."))]
    assert kept
    assert [name for name in kept if not torch.equal(ours[name], theirs[name])] == []
    assert ours["classifier.weight"].shape[1] == 6
    dnlnet.attend(run, [data / "images" / "val" / "0.png"], out=tmp_path / "maps", progress=SILENT)
    with np.load(tmp_path / "maps" / "0.npz") as maps:
        assert maps["0/pairwise"].shape[1:] == (8, 9)  # grid of the block, not of the detail branch
    with pytest.raises(ValueError, match=r"only its backbone fits .* set model\.whole=false"):
        dnlnet.train(recipe(weights, "model.whole=true"), data, tmp_path / "none")
    with pytest.raises(ValueError, match=r"model\.whole=true needs a trained model as model\.weights, got imagenet"):
        dnlnet.override(recipe(weights), ["model.weights=imagenet", "model.whole=true"])


def test_a_later_phase_may_train_the_last_stages(weights: Path, data: Path, tmp_path: Path) -> None:
    phase = "{train: train, iterations: 3, lr: 0.001, unfrozen: [backbone.body.layer4]}"
    longer = recipe(weights, f"schedule.then=[{phase}]", "training.save_every=1")
    dnlnet.train(longer, data, tmp_path / "whole")
    kept = load_file(tmp_path / "whole" / "last.safetensors")
    for name, tensor in torch.load(weights).items():
        if name.endswith("weight") and "bn" not in name and "downsample.1" not in name:
            assert torch.equal(kept[f"backbone.body.{name}"], tensor) == (not name.startswith("layer4")), name

    class StoppedError(Exception):
        pass

    def stop(done: int) -> None:
        if done == 6:
            raise StoppedError

    with pytest.raises(StoppedError):
        dnlnet.train(longer, data, tmp_path / "stopped", progress=Recorder(stop))
    dnlnet.train(longer, data, tmp_path / "stopped")
    resumed = load_file(tmp_path / "stopped" / "last.safetensors")
    assert all(torch.equal(resumed[name], kept[name]) for name in kept)


def test_the_backbone_equals_the_file_and_scores_equal_the_whole_network(
    cached: Path, weights: Path, data: Path
) -> None:
    kept = load_file(cached / "last.safetensors")
    for name, tensor in torch.load(weights).items():
        assert torch.equal(kept[f"backbone.body.{name}"], tensor), name
    found = dnlnet.evaluate(cached, data)
    assert found is not None
    logged = dnlnet.load(cached).file.scores
    assert logged is not None
    assert found.values["miou"] == pytest.approx(logged["miou"], abs=5e-3)  # float16 features against float32
    prediction = dnlnet.load(cached).predict(data / "images" / "val" / "1.png")
    assert prediction.labels.shape == (64, 76)


def test_a_model_on_frozen_features_is_an_ordinary_model_file(cached: Path, data: Path, tmp_path: Path) -> None:
    image = data / "images" / "val" / "0.png"
    dnlnet.attend(cached, [image], out=tmp_path / "maps", progress=SILENT)
    with np.load(tmp_path / "maps" / "0.npz") as maps:
        assert maps["0/pairwise"].shape[1:] == (8, 9)
    exported = dnlnet.export(cached, tmp_path / "model.pt2", "torch", size=(64, 72))
    assert exported.largest < 1e-4
    assert "features of resnet18" in dnlnet.load(cached).generate_model_card().text


def test_features_of_a_view_equal_features_of_the_resized_flipped_image(weights: Path, data: Path) -> None:
    path = data / "images" / "train" / "2.png"
    with Image.open(path) as image:
        seen = image.resize((60, 48), Image.Resampling.BILINEAR).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    backbone = Backbone("resnet18", 32)
    backbone.body.load_state_dict(torch.load(weights))
    with torch.no_grad():
        maps = backbone.eval()(normalised(torch.from_numpy(np.array(seen)).permute(2, 0, 1)[None]))
    found = extractor(weights)(path, View(0.75, flipped=True))
    for ours, theirs in zip(found, maps[1:], strict=True):
        torch.testing.assert_close(ours, theirs[0].half(), atol=2e-3, rtol=1e-2)


def test_crops_show_the_pixels_at_their_positions(weights: Path, data: Path) -> None:
    images = folder(data, "train")
    source, whole = extractor(weights), WholeFeatures(images, extractor(weights), GRID)
    crops = FeatureCrops(images, source, [View(1.0)], (4, 5), GRID, seed=3)
    for index in range(len(images)):
        crop, full = crops[(index, 1)], whole[index]
        finest = full.features.maps[0]
        places = [
            (top, left)
            for top in range(finest.shape[1] - 3)
            for left in range(finest.shape[2] - 4)
            if torch.equal(finest[:, top : top + 4, left : left + 5], crop.features.maps[0])
        ]
        ((top, left),) = places
        expected = full.labels[8 * top : 8 * top + 32, 8 * left : 8 * left + 40]
        assert torch.equal(crop.labels[: expected.shape[0], : expected.shape[1]], expected)
        joined = [join_stages(batch_of(sample.features))[0] for sample in (crop, full)]
        torch.testing.assert_close(joined[0], joined[1][:, top : top + 4, left : left + 5])
    assert torch.equal(crops[(0, 1)].features.maps[1], crops[(0, 1)].features.maps[1])
    large = FeatureCrops(images, source, [View(1.0)], (20, 20), GRID)[(0, 0)]
    assert large.features.maps[0].shape == (128, 20, 20)
    assert (large.labels[64:] == 255).all()


def batch_of(features: Features) -> Features:
    """Return a batch of one in float32."""
    maps = [x[None].float() for x in features.maps]
    return Features(maps, [[x[None] for x in weights] for weights in features.weights])


def test_images_and_their_features_give_the_same_logits() -> None:
    torch.manual_seed(0)
    network = FrozenSegmentor(Backbone("resnet18", 32), 3, "dnl", stages=(0, 2), width=8, reduce=4).eval()
    images = torch.rand(2, 3, 61, 75)
    with torch.no_grad():
        logits = network(Features(network.stage_maps(images))).logits
        assert logits.shape == (2, 3, 64, 76)
        assert torch.equal(network(images).logits, logits[..., :61, :75])
    with pytest.raises(ValueError, match=r"rising numbers of 0\.\.3, got \[2, 1\]"):
        FrozenSegmentor(Backbone("resnet18", 32), 3, stages=(2, 1))


def test_detail_joins_the_first_stage_and_the_output_of_the_block() -> None:
    torch.manual_seed(0)
    network = FrozenSegmentor(Backbone("resnet18", 32), 3, "dnl", stages=(0, 1, 2), width=8, detail=6).eval()
    images = torch.rand(2, 3, 57, 75)  # stride 4 has 15 rows, stride 8 has 8
    with torch.no_grad():
        fine, grid, coarse = network.stage_maps(images)
        mixed = network.block(network.mix(torch.cat([grid, F.interpolate(coarse, (8, 10), mode="bilinear")], dim=1)))
        fine = torch.cat([fine, torch.zeros(2, 64, 1, 19)], dim=2)
        fine = torch.cat([fine, torch.zeros(2, 64, 16, 1)], dim=3)
        detailed = network.detail(torch.cat([F.interpolate(mixed, (16, 20), mode="bilinear"), fine], dim=1))
        expected = F.interpolate(network.classifier(detailed), (64, 80), mode="bilinear")
        torch.testing.assert_close(network(images).logits, expected[..., :57, :75])
    with pytest.raises(ValueError, match=r"detail needs a first stage that divides the second, got strides \[4\]"):
        FrozenSegmentor(Backbone("resnet18", 32), 3, stages=(0,), detail=6)


def test_crops_of_detail_match_those_of_the_grid(weights: Path, data: Path) -> None:
    images, source = folder(data, "train"), extractor(weights)
    crops = FeatureCrops(images, source, [View(1.0)], (2, 2), Grid((8, 16, 32), detail=True), seed=3)
    whole = WholeFeatures(images, source, Grid((8, 16, 32), detail=True))
    for index in range(len(images)):
        crop, full = crops[(index, 1)], whole[index]
        rows, columns = full.features.maps[0].shape[-2:]
        ((top, left),) = [
            (top, left)
            for top in range(rows - 1)
            for left in range(columns - 1)
            if torch.equal(full.features.maps[0][:, top : top + 2, left : left + 2], crop.features.maps[0])
        ]
        fine = full.features.detail[0][:, 2 * top : 2 * top + 4, 2 * left : 2 * left + 4]
        found = crop.features.detail[0]
        assert found.shape[-2:] == (4, 4)
        assert torch.equal(found[:, : fine.shape[1], : fine.shape[2]], fine)
        labels = full.labels[16 * top : 16 * top + 32, 16 * left : 16 * left + 32]
        assert torch.equal(crop.labels[: labels.shape[0], : labels.shape[1]], labels)


def test_subpixels_are_logits_side_by_side() -> None:
    """Logit (r i + a, r j + b) of class k is channel (k, a, b) of position (i, j): Shi et al., CVPR 2016."""
    torch.manual_seed(0)
    network = FrozenSegmentor(Backbone("resnet18", 32), 3, None, stages=(0,), width=8, subpixels=4).eval()
    joined = torch.rand(1, 64, 5, 6)
    with torch.no_grad():
        logits = network(Features([joined])).logits  # stride 4, with one logit per pixel
        channels = network.classifier(network.mix(joined))[0]
    assert logits.shape == (1, 3, 20, 24)
    for k, i, j, a, b in ((0, 0, 0, 0, 0), (2, 4, 5, 3, 1), (1, 2, 3, 1, 2)):
        assert logits[0, k, 4 * i + a, 4 * j + b] == channels[16 * k + 4 * a + b, i, j]


def test_a_cache_is_resumed_and_repaired_and_never_stale(weights: Path, data: Path, tmp_path: Path) -> None:
    images = sorted((data / "images" / "train").iterdir())
    images = [Path(shutil.copy(path, tmp_path / path.name)) for path in images]
    views = [View(1.0), View(1.0, flipped=True)]
    cache = FeatureCache(tmp_path / "cache", extractor(weights))
    recorder = Recorder()

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.fill(list(product(images, views)), progress=Recorder(stop, "features"))
    cache.fill(list(product(images, views)), progress=recorder)
    assert recorder.steps[-1][:3] == ("features", 9, 9)  # three of twelve were cached
    damaged = cache.path(images[0], views[0])
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100])
    with pytest.raises(OSError, match="cannot be read"):
        cache(images[0], views[0])
    FeatureCache(tmp_path / "cache", extractor(weights)).fill(list(product(images, views)))
    assert torch.equal(cache(images[0], views[0])[0], extractor(weights)(images[0], views[0])[0])
    Image.new("RGB", (40, 40)).save(images[0])  # another image with the same name
    again = FeatureCache(tmp_path / "cache", extractor(weights))
    recorder = Recorder()
    again.fill(list(product(images, views)), recorder)
    assert "10 of 12 maps are in the cache" in recorder.said[0]
    assert again(images[0], views[0])[0].shape == (128, 5, 5)


def test_features_computed_by_another_process_are_not_computed_again(
    weights: Path, data: Path, tmp_path: Path
) -> None:
    images, views = sorted((data / "images" / "train").iterdir()), [View(1.0), View(0.75)]
    computed: list[tuple[Path, View]] = []
    cache = FeatureCache(tmp_path, extractor(weights))
    extract = cache.extractor

    def counting(image: Path, view: View) -> list[torch.Tensor]:
        computed.append((image, view))
        return extract(image, view)

    for name in ("key", "names", "settings"):
        setattr(counting, name, getattr(extract, name))
    cache.extractor = counting  # type: ignore[assignment]

    def others_come_in(done: int) -> None:
        if done == 4:
            FeatureCache(tmp_path, extract).fill(list(product(images, views)))

    cache.fill(list(product(images, views)), progress=Recorder(others_come_in, "features"))
    assert len(computed) == 4 < len(images) * len(views) == 12
    assert all(cache(image, view)[0].isfinite().all() for image in images for view in views)


def test_bad_images_and_labels_of_another_size_are_refused(weights: Path, data: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(data, tmp_path / "data"))
    image = root / "images" / "train" / "0.png"
    crops = FeatureCrops(folder(root, "train"), extractor(weights), [View(1.0)], (4, 5), GRID)
    Image.new("RGB", (40, 40)).save(image)
    with pytest.raises(BadFileError, match=r"72 x 64 .*40 x 40"):
        crops[(0, 0)]
    image.write_text("not an image")
    with pytest.raises(BadFileError, match=r"0\.png: "):
        FeatureCache(tmp_path / "cache", extractor(weights)).fill([(image, View(1.0))])


def test_caches_of_other_weights_and_stages_are_separate(weights: Path, tmp_path: Path) -> None:
    state = torch.load(weights)
    state["conv1.weight"] += 1e-3
    torch.save(state, tmp_path / "other.pth")
    keys = {extractor(weights).key, extractor(tmp_path / "other.pth").key, extractor(weights, (2, 3)).key}
    assert len(keys) == 3
    assert extractor(weights).key in keys


def test_caches_of_earlier_versions_are_still_used(weights: Path) -> None:
    digest = sha256(json.dumps([2, {"backbone": "resnet18"}, [1, 2, 3]]).encode())
    for name, tensor in torch.load(weights).items():
        digest.update(f"body.{name}".encode() + tensor.numpy().tobytes())
    assert extractor(weights).key == digest.hexdigest()[:16]
    assert extractor(weights).names == ("1", "2", "3")
    assert [str(view) for view in (View(1.0), View(0.75, flipped=True))] == ["1", "0.75-flipped"]


def test_a_full_disk_is_refused(weights: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("dnlnet.recipes.features.shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r" 0 MB.*--cache"):
        FeatureCache(tmp_path, extractor(weights)).fill(
            [(image, View(1.0)) for image in sorted((data / "images" / "train").iterdir())]
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.frozen=[]"], "frozen"),
        (["model.network=segmentor", "data.views=[]"], "training.cache"),
        (["data.views=[]"], r"learns from features in data\.views"),
    ],
)
def test_recipes_that_cannot_be_cached_are_refused(settings: list[str], message: str, weights: Path) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(weights, *settings)


def test_invalid_settings_are_refused_before_anything_is_computed(weights: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"50 x 50 .*8"):
        _grid_size((50, 50), 8)
    with pytest.raises(ValueError, match=r"model\.weights"):
        dnlnet.train(recipe(weights, "model.weights=null"), data, tmp_path / "none")
    plain = dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), ["schedule.iterations=1"])
    with pytest.raises(ValueError, match=r"--cache .*training\.cache=true"):
        dnlnet.train(plain, None, tmp_path / "plain", cache=tmp_path / "cache")


def test_transformers_have_maps() -> None:
    with torch.device("meta"):
        backbone = Backbone("vit_s")
        assert (backbone.channels, backbone.strides) == ((384,) * 4, (14,) * 4)
        assert [tuple(x.shape) for x in backbone(torch.empty(1, 3, 30, 60))] == [(1, 384, 3, 5)] * 4
        other = Backbone("convnext_atto")
    assert (other.channels, other.strides) == ((40, 80, 160, 320), (4, 8, 16, 32))


def test_the_cache_describes_its_features_without_a_path(cached: Path) -> None:
    (about,) = (cached / "cache").rglob("about.json")
    assert json.loads(about.read_text())["backbone"] == "resnet18"
    assert str(cached) not in about.read_text()
