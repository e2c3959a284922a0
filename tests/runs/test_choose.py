import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coco_trees import annotation, coco_folder_tree, coco_tree, write_coco
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import find_recipe
from dnlnet.runs.choose import choose_recipe, recognise, require_ready, require_suitable, with_holdout
from observer import Recorder
from trees import (
    ade20k_tree,
    camvid_tree,
    cityscapes_tree,
    flat_tree,
    folder_tree,
    oxford_pets_tree,
    pascal_context_tree,
    write_image,
)
from video_trees import kinetics_tree, ucf101_tree, video_folder_tree

FOLDER = "folder-mbv2_frozen-dnl"
COCO = "coco-micro-mbv2_frozen-dnl-c4"


def flat_coco_tree(root: Path) -> Path:
    objects = [annotation(number, number, 3, (10, 5, 20, 15)) for number in range(20)]
    write_coco(root / "annotations" / "export.json", root / "images", dict.fromkeys(range(20), (40, 60)), objects)
    return root


def flat_video_tree(root: Path) -> Path:
    for number in range(20):
        path = root / ("jump", "run")[number % 2] / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not decoded here")
    return root


FLAT = (flat_tree, flat_coco_tree, flat_video_tree)


@pytest.mark.parametrize(
    ("tree", "recipe", "data", "splits"),
    [
        (folder_tree, FOLDER, "folder", ("train", "val")),
        (camvid_tree, "camvid-mbv2_frozen-dnl", "camvid", ("train", "val")),
        (oxford_pets_tree, "pets-mbv2_frozen-dnl", "oxford_pets", ("trainval", "test")),
        (cityscapes_tree, FOLDER, "cityscapes", ("train", "val")),
        (ade20k_tree, FOLDER, "ade20k", ("train", "val")),
        (pascal_context_tree, FOLDER, "pascal_context_60", ("train", "val")),
        (coco_tree, COCO, "coco", ("train2017", "val2017")),
        (coco_folder_tree, COCO, "coco_folder", ("train", "val")),
        (ucf101_tree, "ucf6-mbv2_frozen-dnl", "ucf101", ("train01", "test01")),
        (kinetics_tree, "ucf6-mbv2_frozen-dnl", "kinetics", ("train", "val")),
        (video_folder_tree, "ucf6-mbv2_frozen-dnl", "video_folder", ("train", "val")),
        (flat_tree, FOLDER, "folder", ("train", "val")),
        (flat_coco_tree, COCO, "coco_folder", ("train", "val")),
        (flat_video_tree, "ucf6-mbv2_frozen-dnl", "video_folder", ("train", "val")),
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
    with pytest.raises(ValueError, match=r"no known data set; expected images with masks and classes\.yaml"):
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


def files_of(recipe: Recipe, root: Path) -> dict[str, set[str]]:
    """Return the names of the images or videos in both parts of a folder without splits."""
    parts = {split: recipe.open(root, split).files() for split in ("train", "val")}
    return {
        split: {path.relative_to(root).as_posix() for path, _ in files if "masks" not in path.parts}
        for split, files in parts.items()
    }


@pytest.mark.parametrize("tree", FLAT)
def test_a_folder_without_splits_is_divided_by_the_names_of_its_files(
    tree: Callable[[Path], Path], tmp_path: Path
) -> None:
    root, progress = tree(tmp_path / "a"), Recorder()
    recipe = with_holdout(choose_recipe(root)[0], root, progress)
    parts = files_of(recipe, root)
    assert recipe.data.holdout == 0.2
    assert not parts["train"] & parts["val"]
    assert len(parts["train"] | parts["val"]) == 20
    for text in (f"{len(parts['train'])} ", f"{len(parts['val'])} ", "0.2"):
        assert text in progress.said[0]
    assert files_of(recipe, tree(tmp_path / "moved" / "b")) == parts


def test_other_files_never_move_a_file_to_the_other_part(tmp_path: Path) -> None:
    root = flat_tree(tmp_path)
    recipe = with_holdout(choose_recipe(root)[0], root)
    before = files_of(recipe, root)
    flat_tree(tmp_path, range(20, 60))
    for number in range(5):
        for path in (tmp_path / "images" / f"{number}.jpg", tmp_path / "masks" / f"{number}.png"):
            path.unlink()
    after = files_of(recipe, root)
    for split, names in before.items():
        assert after[split] & {f"images/{n}.jpg" for n in range(20)} == names - {f"images/{n}.jpg" for n in range(5)}


def test_a_larger_holdout_keeps_the_files_of_a_smaller_one(tmp_path: Path) -> None:
    root = flat_tree(tmp_path)
    recipe = choose_recipe(root)[0]
    small, large = (files_of(override(recipe, [f"data.holdout={share}"]), root)["val"] for share in (0.2, 0.5))
    assert small < large


@pytest.mark.parametrize("holdout", [0.0001, 0.9999])
def test_an_empty_part_is_an_error_that_suggests_a_share(holdout: float, tmp_path: Path) -> None:
    root = flat_tree(tmp_path)
    recipe = choose_recipe(root)[0]
    with pytest.raises(ValueError, match=r"all 20 images .*--holdout 0\.\d+$") as error:
        with_holdout(override(recipe, [f"data.holdout={holdout}"]), root)
    suggested = str(error.value).rpartition(" ")[2]
    assert all(files_of(override(recipe, [f"data.holdout={suggested}"]), root).values())


def test_one_image_cannot_be_divided(tmp_path: Path) -> None:
    root = flat_tree(tmp_path, range(1))
    with pytest.raises(ValueError, match="more images, or folders named train and val"):
        with_holdout(find_recipe(FOLDER), root)


def test_a_holdout_is_refused_for_a_folder_with_splits(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    assert with_holdout(find_recipe(FOLDER), root) == find_recipe(FOLDER)
    with pytest.raises(ValueError, match="splits of its own; leave out --holdout"):
        with_holdout(override(find_recipe(FOLDER), ["data.holdout=0.3"]), root)


def test_a_model_trained_on_parts_is_scored_on_the_splits_of_another_folder(tmp_path: Path) -> None:
    recipe = override(find_recipe(FOLDER), ["data.holdout=0.3"])
    assert len(recipe.open(folder_tree(tmp_path), "val")) == 1


@pytest.mark.parametrize(
    ("tree", "gone"),
    [(flat_tree, "classes.yaml"), (flat_tree, "masks"), (folder_tree, "classes.yaml"), (flat_coco_tree, "images")],
)
def test_a_folder_that_lacks_one_thing_is_told_which(tree: Callable[[Path], Path], gone: str, tmp_path: Path) -> None:
    root = tree(tmp_path)
    shutil.move(root / gone, tmp_path.parent / f"{tmp_path.name}-{gone}")
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(str(root / gone))}: no such f"):
        recognise(root)[1].open_all(root)


def test_folders_of_images_are_not_taken_for_videos(tmp_path: Path) -> None:
    for name in ("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"):
        write_image(tmp_path / name)
    with pytest.raises(ValueError, match="looks like no known data set"):
        choose_recipe(tmp_path)
