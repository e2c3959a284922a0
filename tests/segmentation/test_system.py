"""Every recipe against the paper's tables, and built and run for one step."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from dnlnet.data.classes import Classes
from dnlnet.recipes.override import override
from dnlnet.segmentation.data.samples import Draw, Sample
from dnlnet.segmentation.data.scenes import CLASSES as SCENE_CLASSES
from dnlnet.segmentation.data.sets import DATA_SETS
from dnlnet.segmentation.system import SYSTEM
from dnlnet.systems import RECIPES, find_recipe, match_recipes
from trees import ade20k_tree, camvid_tree, cityscapes_tree, folder_tree, pascal_context_tree

TREES: dict[str, Callable[[Path], Path]] = {
    "cityscapes": cityscapes_tree,
    "ade20k": ade20k_tree,
    "pascal_context_60": pascal_context_tree,
    "camvid": camvid_tree,
}
SEGMENTATION = [name for name, recipe in RECIPES.items() if recipe.task == "segmentation"]
SMALL = ["model.weights=null", "data.crop=[33, 49]", "loss.ohem.kept=100"]


def test_the_ablation_has_the_papers_rows() -> None:
    scores = {
        "baseline": 75.8,
        "nl": 78.5,
        "nl_pairwise": 77.5,
        "nl_unary": 79.3,
        "dnl_dagger": 79.2,
        "dnl_star": 79.0,
        "dnl": 80.5,
    }
    for variant, miou in scores.items():
        recipe = find_recipe(f"cityscapes-r101-{variant}")
        assert recipe.paper is not None
        assert recipe.paper.scores == {"val": miou}
        assert recipe.model.variant == (None if variant == "baseline" else variant)


@pytest.mark.parametrize(
    ("pattern", "iterations", "batch", "lr", "decay", "crop", "ohem"),
    [
        ("cityscapes-r101-*", 60_000, 8, 0.01, 5e-4, 769, True),
        ("cityscapes_test-*", 100_000, 8, 0.01, 5e-4, 769, True),
        ("ade20k-*", 150_000, 16, 0.02, 1e-4, 520, True),
        ("pascal_context-*", 30_000, 16, 0.001, 1e-4, 520, False),
    ],
)
def test_settings_are_the_papers(
    pattern: str, iterations: int, batch: int, lr: float, decay: float, crop: int, ohem: bool
) -> None:
    for recipe in match_recipes(pattern):
        assert (recipe.schedule.iterations, recipe.schedule.batch) == (iterations, batch)
        assert (recipe.optim.lr, recipe.optim.weight_decay, recipe.optim.momentum) == (lr, decay, 0.9)
        assert recipe.data.crop == (crop, crop)
        assert (recipe.loss.ohem is not None) == ohem
        assert recipe.loss.auxiliary_weight == 0.5
        assert recipe.measured is None


def test_the_test_protocol_goes_over_coarse_labels() -> None:
    phases = find_recipe("cityscapes_test-hrnet_w48-dnl").schedule.then
    assert [(phase.train, phase.iterations, phase.lr) for phase in phases] == [
        ("coarse", 50_000, 0.001),
        ("trainval", 50_000, 0.001),
    ]


def different_networks() -> list[str]:
    """A recipe for each network and crop among them all; the others differ in their data and schedule."""
    kinds = {(find_recipe(name).model.model_dump_json(), find_recipe(name).data.crop): name for name in SEGMENTATION}
    return list(kinds.values())


@pytest.mark.parametrize("name", different_networks())
def test_every_network_builds_and_learns_on_the_meta_device(name: str) -> None:
    recipe = override(find_recipe(name), ["model.weights=null", "model.whole=false"])
    classes = SCENE_CLASSES
    if recipe.data.name in DATA_SETS:
        classes = DATA_SETS[recipe.data.name].classes or SCENE_CLASSES
    with torch.device("meta"):
        model = SYSTEM.build_model(recipe.model, len(classes)).train()
        batch = Sample(
            torch.empty(2, 3, *recipe.data.crop, dtype=torch.uint8),
            torch.empty(2, *recipe.data.crop, dtype=torch.uint8),
            "",
        )
        task = SYSTEM.training_task(recipe, classes)
        sum(task.losses(model, batch).values()).backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


@pytest.mark.parametrize(
    "name",
    [
        "cityscapes-r101-dnl",
        "cityscapes_test-hrnet_w48-dnl",
        "ade20k-r101-nl",
        "pascal_context-r101-dnl",
        "camvid-r50-dnl_star",
        "camvid-mbv2-dnl",
        "scenes-tiny-dnl",
    ],
)
def test_a_step_on_files_in_the_data_sets_own_layout(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    recipe = override(find_recipe(name), SMALL)
    root = TREES[recipe.data.name](tmp_path) if recipe.data.name in TREES else None
    data = SYSTEM.training_data(recipe, root)
    classes = data.classes
    assert len(SYSTEM.test_data(recipe, root, "val")) > 0
    batch = next(iter(DataLoader(data, batch_size=2, sampler=[Draw(0, 0), Draw(1, 0)])))
    model, task = SYSTEM.build_model(recipe.model, len(classes)).train(), SYSTEM.training_task(recipe, classes)
    losses = task.losses(model, batch)
    assert set(losses) == ({"main", "auxiliary"} if recipe.model.auxiliary else {"main"})
    sum(losses.values()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    metric = task.metric()
    metric.update(task.predict(model.eval(), batch), batch.labels)
    assert metric.counts.sum() == (batch.labels != 255).sum()


def test_names_say_data_set_backbone_and_variant() -> None:
    for name in SEGMENTATION:
        recipe = find_recipe(name)
        data, _, variant = name.split("-")
        assert data.removesuffix("_test") in recipe.data.name
        assert (recipe.model.variant or "baseline") == variant
        assert recipe.data.name in {*DATA_SETS, "scenes"}


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown recipe 'camvid-r50-dnll'; did you mean 'camvid-r50-dnl'"):
        find_recipe("camvid-r50-dnll")
    with pytest.raises(ValueError, match="unknown recipe 'kitti"):
        match_recipes("kitti*")


def test_pretrained_weights_come_from_a_file(tmp_path: Path) -> None:
    from dnlnet.backbones import Backbone

    source = Backbone("mobilenetv2")
    torch.save(source.body.state_dict(), tmp_path / "weights.pth")
    recipe = override(find_recipe("camvid-mbv2-dnl"), [f"model.weights={tmp_path / 'weights.pth'}"])
    model = SYSTEM.build_model(recipe.model, 11)
    torch.testing.assert_close(model.backbone.body.conv_stem.weight, source.body.conv_stem.weight)


def test_data_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="camvid-mbv2-dnl needs the folder of its data set, camvid: give it with --data DIR"
    ):
        SYSTEM.training_data(find_recipe("camvid-mbv2-dnl"), None)
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["loss.class_weights=[1.0, 2.0]"])
    with pytest.raises(ValueError, match="has 2 class weights for 11 classes"):
        SYSTEM.training_task(recipe, Classes([""] * 11, [(0, 0, 0)] * 11))
    own = override(recipe, ["data.name=folder"])
    with pytest.raises(ValueError, match="camvid-mbv2-dnl needs the folder of its data set, folder"):
        SYSTEM.training_data(own, None)
    folder = override(own, ["loss.class_weights=null"])
    assert SYSTEM.test_data(folder, folder_tree(tmp_path), "val").classes.names == ("sky", "road", "car")
    with pytest.raises(ValueError, match="unknown data set 'camvidd'; did you mean 'camvid'"):
        SYSTEM.training_data(override(recipe, ["data.name=camvidd"]), tmp_path)


def test_real_camvid_gives_a_batch(real_data: Path) -> None:
    recipe = find_recipe("camvid-mbv2-dnl")
    data = SYSTEM.training_data(recipe, real_data / "camvid")
    classes = data.classes
    assert len(data) == 367
    sample = data[Draw(0, 0)]
    assert sample.image.shape == (3, 321, 449)
    counts = sample.labels[sample.labels != 255].bincount(minlength=len(classes))
    assert (counts > 0).sum() >= 5
