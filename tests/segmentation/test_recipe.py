"""Every recipe is compared with the paper's tables, built, and run for one step."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dnlnet.data.classes import Classes
from dnlnet.data.samples import Draw, Sample
from dnlnet.data.scenes import CLASSES as SCENE_CLASSES
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.override import override
from dnlnet.registry import RECIPES, find_recipe, match_recipes
from dnlnet.segmentation.data.sets import DATA_SETS
from dnlnet.segmentation.network import SegmentorOutput
from dnlnet.segmentation.recipe import SegmentationRecipe
from trees import ade20k_tree, camvid_tree, cityscapes_tree, folder_tree, pascal_context_tree

TREES: dict[str, Callable[[Path], Path]] = {
    "cityscapes": cityscapes_tree,
    "ade20k": ade20k_tree,
    "pascal_context_60": pascal_context_tree,
    "camvid": camvid_tree,
}
SEGMENTATION = [name for name, recipe in RECIPES.items() if recipe.task == "segmentation"]
WHOLE = ["evaluation.short_side=null", "evaluation.long_side=null"]
SMALL = ["model.weights=null", "data.crop=[33, 49]", "loss.ohem.kept=100", *WHOLE]


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


# Centring, logit scale at C = 512, gate, lr, and names without weight decay.
NOWD = ("block.query", "block.key")
RELEASED = {
    "cityscapes-r101_authors-dnl": ("sample", 1, "scalar_pairwise", 0.01, NOWD),
    "cityscapes-r101_authors_nowd_in-dnl": ("none", 1, "scalar_pairwise", 0.01, NOWD),
    "cityscapes-r101_authors_temp_in-dnl": ("channel", 1 / (16 * 0.05), "scalar_pairwise", 0.01, ()),
    "cityscapes-r101_authors-nl": (None, 1 / 16, "scalar_pairwise_norm", 0.01, ()),
    "cityscapes-r101_authors-dnl_dagger": ("channel", 1 / (16 * 0.06), "scalar_pairwise", 0.01, ()),
    "cityscapes-r101_authors-gc": (None, 1, "scalar_pairwise", 0.01, ()),
    "ade20k-r101_authors-dnl": ("channel", 1 / (16 * 0.1), "scalar_pairwise", 0.02, ()),
    "ade20k-r101_authors-nl": (None, 1 / 16, "scalar_pairwise_norm", 0.02, ()),
    "ade20k-hrnet_w48_authors-dnl": ("none", 1 / (180**0.5 * 0.1), "scalar_pairwise", 0.02, ()),
    "pascal_context-r101_authors-dnl": ("sample", 1, "scalar_pairwise", 0.01, NOWD),
    "pascal_context-r101_authors-nl": (None, 1 / 16, "scalar_pairwise_norm", 0.01, ()),
}


def test_every_released_configuration_has_a_recipe() -> None:
    assert set(RELEASED) == {name for name in SEGMENTATION if "_authors" in name}


@pytest.mark.parametrize("name", RELEASED)
def test_settings_equal_the_release(name: str) -> None:
    centring, scale, gate, lr, free = RELEASED[name]
    recipe = find_recipe(name)
    assert isinstance(recipe, SegmentationRecipe)
    with torch.device("meta"):
        block = recipe.build(19, pretrained=False).block
    assert (block.settings.gate, block.scale) == (gate, pytest.approx(scale))
    assert centring in (None, block.settings.centring)
    assert not block.settings.unary_scaled
    assert block.settings.initial == "normal"
    if gate == "scalar_pairwise_norm":  # use_out and out_bn
        assert (block.value.out_features, block.projection.out_features) == (256, 512)
        assert block.value.bias is not None
        assert block.projection.bias is None
    assert (recipe.optim.lr, recipe.optim.no_decay) == (lr, free)
    assert recipe.data.aspects == (0.9, 1.1)
    assert (recipe.loss.auxiliary_weight, recipe.loss.ohem is not None) == (0.4, True)
    assert recipe.model.auxiliary_bias is False
    assert recipe.model.caffe_pixels
    weights = recipe.loss.class_weights
    assert (weights is not None) == name.startswith("cityscapes")
    if weights is not None:
        assert (len(weights), weights[0], weights[17], round(sum(weights), 4)) == (19, 0.8373, 1.1529, 19.0001)
    assert recipe.paper is not None
    assert ("whitening" in recipe.paper.remark) == (block.settings.centring == "none")


def test_the_test_protocol_trains_on_coarse_labels() -> None:
    phases = find_recipe("cityscapes_test-hrnet_w48-dnl").schedule.then
    assert [(phase.train, phase.iterations, phase.lr) for phase in phases] == [
        ("coarse", 50_000, 0.001),
        ("trainval", 50_000, 0.001),
    ]


def different_networks() -> list[str]:
    """Return one recipe per distinct network and crop; the remaining recipes differ only in data and schedule.

    The released networks are built above. One of them, with class weights and a norm, is trained here.
    """
    names = [name for name in SEGMENTATION if "_authors" not in name or name == "cityscapes-r101_authors-nl"]
    kinds = {(find_recipe(name).model.model_dump_json(), find_recipe(name).data.crop): name for name in names}
    return list(kinds.values())


@pytest.mark.parametrize("name", different_networks())
def test_every_network_builds_and_learns_on_the_meta_device(name: str) -> None:
    recipe = override(find_recipe(name), ["model.weights=null", "model.whole=false"])
    classes = SCENE_CLASSES
    if recipe.data.name in DATA_SETS:
        classes = DATA_SETS[recipe.data.name].classes or SCENE_CLASSES
    with torch.device("meta"):
        model = recipe.build(len(classes)).train()
        batch = Sample(
            torch.empty(2, 3, *recipe.data.crop, dtype=torch.uint8),
            torch.empty(2, *recipe.data.crop, dtype=torch.uint8),
            "",
        )
        task = recipe.training_task(classes, RunContext(device="meta"))
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
def test_a_step_on_files_in_the_layout_of_the_data_set(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    recipe = override(find_recipe(name), SMALL)
    root = TREES[recipe.data.name](tmp_path) if recipe.data.name in TREES else None
    data = recipe.training_samples(RunContext(root), recipe.data.train)
    classes = data.classes
    assert len(recipe.test_samples(root, "val")) > 0
    batch = next(iter(DataLoader(data, batch_size=2, sampler=[Draw(0, 0), Draw(1, 0)])))
    model, task = recipe.build(len(classes)).train(), recipe.training_task(classes, RunContext())
    losses = task.losses(model, batch)
    assert set(losses) == ({"main", "auxiliary"} if getattr(recipe.model, "auxiliary", False) else {"main"})
    sum(losses.values()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    metric = task.metric()
    one = Sample(batch.image[:1], batch.labels[:1], batch.name[:1])
    task.score(model.eval(), one, metric)
    assert metric.counts.sum() == (one.labels != 255).sum()


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("cityscapes-r101-dnl", {(769, 769)}),  # 2 x 4 windows of 1,024 x 2,048
        ("ade20k-r101-dnl", {(520, 1040)}),  # shorter side 520, scale 1, not flipped
        ("camvid-mbv2-dnl", {(1024, 2048)}),
    ],
)
def test_a_run_is_scored_with_its_recipes_windows_at_one_scale(name: str, seen: set[tuple[int, int]]) -> None:
    recipe, sizes = find_recipe(name), []

    def network(images: Tensor) -> SegmentorOutput:
        sizes.extend(tuple(image.shape[1:]) for image in images)
        return SegmentorOutput(images[:, :1])

    task = recipe.training_task(SCENE_CLASSES, RunContext())
    task.predict(network, Sample(torch.zeros(1, 3, 1024, 2048, dtype=torch.uint8), torch.zeros(1, 1024, 2048), ""))
    assert set(sizes) == seen
    assert len(sizes) == (8 if name.startswith("cityscapes") else 1)


def test_names_contain_data_set_backbone_and_variant() -> None:
    for name in SEGMENTATION:
        recipe = find_recipe(name)
        data, _, variant = name.split("-")
        assert data.removesuffix("_test") in recipe.data.name
        assert (recipe.model.variant or "baseline") == variant
        assert recipe.data.name in {*DATA_SETS, "scenes"}


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'camvid-r50-dnll'.*'camvid-r50-dnl'"):
        find_recipe("camvid-r50-dnll")
    with pytest.raises(ValueError, match="'kitti"):
        match_recipes("kitti*")


def test_pretrained_weights_come_from_a_file(tmp_path: Path) -> None:
    from dnlnet.backbones import Backbone

    source = Backbone("mobilenetv2")
    torch.save(source.body.state_dict(), tmp_path / "weights.pth")
    recipe = override(find_recipe("camvid-mbv2-dnl"), [f"model.weights={tmp_path / 'weights.pth'}"])
    model = recipe.build(11)
    torch.testing.assert_close(model.backbone.body.conv_stem.weight, source.body.conv_stem.weight)


def test_missing_and_mismatched_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"camvid-mbv2-dnl .*camvid.*--data"):
        find_recipe("camvid-mbv2-dnl").training_samples(RunContext(), "train")
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["loss.class_weights=[1.0, 2.0]"])
    with pytest.raises(ValueError, match=r"2 .*11 classes"):
        recipe.training_task(Classes([""] * 11, [(0, 0, 0)] * 11), RunContext())
    own = override(recipe, ["data.name=folder"])
    with pytest.raises(ValueError, match=r"camvid-mbv2-dnl .*folder"):
        own.training_samples(RunContext(), "train")
    folder = override(own, ["loss.class_weights=null"])
    assert folder.test_samples(folder_tree(tmp_path), "val").classes.names == ("sky", "road", "car")
    with pytest.raises(ValueError, match=r"'camvidd'.*'camvid'"):
        override(recipe, ["data.name=camvidd"]).training_samples(RunContext(tmp_path), "train")


def test_real_camvid_gives_a_batch(real_data: Path) -> None:
    recipe = find_recipe("camvid-mbv2-dnl")
    data = recipe.training_samples(RunContext(real_data / "camvid"), "train")
    classes = data.classes
    assert len(data) == 367
    sample = data[Draw(0, 0)]
    assert sample.image.shape == (3, 321, 449)
    counts = sample.labels[sample.labels != 255].bincount(minlength=len(classes))
    assert (counts > 0).sum() >= 5
