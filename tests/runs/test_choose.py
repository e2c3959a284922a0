import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coco_trees import coco_tree
from dnlnet.registry import find_recipe
from dnlnet.runs.choose import choose_recipe, require_ready, require_suitable
from trees import ade20k_tree, camvid_tree, cityscapes_tree, folder_tree, oxford_pets_tree, pascal_context_tree
from video_trees import kinetics_tree, ucf101_tree, video_folder_tree

FOLDER = "folder-mbv2_frozen-dnl"


def coco_folder_tree(root: Path) -> Path:
    coco_tree(root)
    for split in ("train", "val"):
        (root / "annotations" / f"instances_{split}2017.json").rename(root / "annotations" / f"{split}.json")
        (root / f"{split}2017").rename(root / split)
    return root


@pytest.mark.parametrize(
    ("tree", "recipe", "data", "splits"),
    [
        (folder_tree, FOLDER, "folder", ("train", "val")),
        (camvid_tree, "camvid-mbv2_frozen-dnl", "camvid", ("train", "val")),
        (oxford_pets_tree, "pets-mbv2_frozen-dnl", "oxford_pets", ("trainval", "test")),
        (cityscapes_tree, FOLDER, "cityscapes", ("train", "val")),
        (ade20k_tree, FOLDER, "ade20k", ("train", "val")),
        (pascal_context_tree, FOLDER, "pascal_context_60", ("train", "val")),
        (coco_tree, "coco-micro-dnl-c4", "coco", ("train2017", "val2017")),
        (coco_folder_tree, "coco-micro-dnl-c4", "coco_folder", ("train", "val")),
        (ucf101_tree, "ucf6-r50-dnl", "ucf101", ("train01", "test01")),
        (kinetics_tree, "ucf6-r50-dnl", "kinetics", ("train", "val")),
        (video_folder_tree, "ucf6-r50-dnl", "video_folder", ("train", "val")),
    ],
)
def test_the_layout_of_a_folder_chooses_the_recipe(
    tree: Callable[[Path], Path], recipe: str, data: str, splits: tuple[str, str], tmp_path: Path
) -> None:
    chosen, why = choose_recipe(tree(tmp_path))
    assert (chosen.name, chosen.data.name, (chosen.data.train, chosen.data.test)) == (recipe, data, splits)
    assert f"{tmp_path} has " in why
    assert f"the layout of {data}: training {recipe}" in why


def test_a_folder_with_one_split_is_trained_without_a_score(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    for part in ("images", "masks"):
        shutil.rmtree(root / part / "val")
    chosen, why = choose_recipe(root)
    assert (chosen.data.train, chosen.data.test) == ("train", None)
    assert why.endswith("with no split to be scored on")


def test_an_unknown_folder_reports_the_expected_layout_and_close_matches(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"looks like no known data set; expected images/<split> with masks/<split>"):
        choose_recipe(tmp_path / "empty")
    coco_tree(tmp_path / "mine")
    with pytest.raises(ValueError, match="mine does: give that"):
        choose_recipe(tmp_path)


def test_a_recipe_for_another_layout_suggests_one_that_fits(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "data")
    with pytest.raises(ValueError, match=f"is for camvid, but .* looks like folder; train {FOLDER} on it"):
        require_suitable(find_recipe("camvid-mbv2-dnl"), root)
    require_suitable(find_recipe("folder-r50_frozen-nl"), root)


def test_missing_files_are_reported_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = find_recipe("coco-micro-dnl-c4")
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        require_ready(recipe, tmp_path / "nowhere", tmp_path / "run")
    monkeypatch.setattr("dnlnet.errors.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "dnlnet\[detection\]"'):
        require_ready(recipe, coco_tree(tmp_path / "data"), tmp_path / "run")
    scenes = find_recipe("scenes-tiny-dnl")
    weights = scenes.model_copy(update={"model": find_recipe(FOLDER).model.model_copy(update={"weights": "a.pth"})})
    with pytest.raises(FileNotFoundError, match=r"a\.pth: no such file of weights"):
        require_ready(weights, None, tmp_path / "run")
