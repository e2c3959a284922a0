import os
from pathlib import Path

import numpy as np
import pytest

from dnlnet.detection.data.check import check_instances
from dnlnet.detection.data.outlines import encoded
from dnlnet.detection.data.oxford_pets import oxford_pets
from dnlnet.registry import data_sets
from dnlnet.runs.check import check_data, recognised_name
from trees import SIZE, oxford_pets_tree, save, truncate, write_labels

LIST = "annotations/trainval.txt"


def pet_tree(root: Path) -> Path:
    """Write images whose pets are rectangles with a border of two pixels."""
    oxford_pets_tree(root)
    trimap = np.full(SIZE, 2, dtype=np.uint8)
    trimap[4:14, 6:26] = 3
    trimap[6:12, 8:24] = 1
    for path in (root / "annotations" / "trimaps").iterdir():
        save(path, trimap)
    return root


def problems(root: Path, split: str = "trainval") -> list[str]:
    return [str(problem) for problem in oxford_pets(root, split).problems]


def test_species_mask_and_box_come_from_the_list_and_the_trimap(tmp_path: Path) -> None:
    images = oxford_pets(pet_tree(tmp_path), "trainval").require_complete()
    assert (images.name, images.classes.names, images.classes.numbers) == (
        "oxford_pets_objects trainval",
        ("cat", "dog"),
        (1, 2),
    )
    assert [image.path.stem for image in images.images] == ["beagle_7", "Bengal_1"]
    assert [image.instances[0].label for image in images.images] == [2, 1]
    target = images.target(0)
    assert target.boxes.tolist() == [[6, 4, 26, 14]]  # with the border
    expected = np.zeros(SIZE, dtype=np.uint8)
    expected[6:12, 8:24] = 1
    assert np.array_equal(target.masks[0], expected)
    assert target.area.tolist() == [6 * 16]
    assert images.pixels(0).shape == (*SIZE, 3)


def test_a_box_is_allowed_to_hold_the_border(tmp_path: Path) -> None:
    report = check_instances(oxford_pets(pet_tree(tmp_path), "trainval"))
    assert (report.problems, report.class_instances) == ((), (1, 1))


@pytest.mark.parametrize("first", [False, True])
def test_masks_survive_their_run_lengths(first: bool) -> None:
    mask = np.random.default_rng(0).random((5, 7)) < 0.5
    mask[0, 0] = first
    assert np.array_equal(encoded(mask).mask((5, 7), (5, 7)), mask)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("pug_3 9 3 1", ["line 3", "'3'", "1 (cat) or 2 (dog)"]),
        ("pug_3 9 dog 1", ["line 3", "'dog'"]),
        ("pug_3 9", ["line 3", "no species"]),
        ("pug_3", ["line 3", "no species"]),
        ("pug_4 9 2 1", ["line 3", "pug_4, which has no image"]),
        ("beagle_7 5 1 1", ["line 3", "beagle_7 again"]),
    ],
)
def test_a_bad_line_is_one_problem_with_its_number(line: str, facts: list[str], tmp_path: Path) -> None:
    root = pet_tree(tmp_path)
    with (root / LIST).open("a") as file:
        file.write(f"{line}\n")
    images = oxford_pets(root, "trainval")
    assert len(images) == 2
    found = problems(root)
    assert all(text.startswith(f"{root / LIST}: ") for text in found)
    assert all(fact in found[0] for fact in facts)
    with pytest.raises(ValueError, match="line 3"):
        images.require_complete()


def test_bad_trimaps_and_images_are_problems(tmp_path: Path) -> None:
    root = pet_tree(tmp_path)
    trimap = root / "annotations" / "trimaps" / "beagle_7.png"
    write_labels(trimap, (0, 1, 2))
    assert problems(root) == [f"{trimap}: label 0 at row 0, column 0; expected 1 (pet), 2 (background), 3 (border)"]
    write_labels(trimap, (1, 2, 3), size=(9, 9))
    (found,) = problems(root)
    assert found.startswith(f"{trimap}: 9 x 9 labels for an image of 32 x 24")
    truncate(trimap)
    assert str(trimap) in problems(root)[0]
    image = root / "images" / "beagle_7.jpg"
    image.write_text("not an image")
    (found,) = problems(root)
    assert found.startswith(f"{image}: ")
    image.unlink()
    assert problems(root) == [f"{root / LIST}: line 1 names beagle_7, which has no image"]


def test_an_image_whose_trimap_has_no_pet_is_left_out_and_counted(tmp_path: Path) -> None:
    root = pet_tree(tmp_path)
    write_labels(root / "annotations" / "trimaps" / "beagle_7.png", (2,))
    images = oxford_pets(root, "trainval").require_complete()
    assert [image.path.stem for image in images.images] == ["Bengal_1"]
    assert list(images.left_out.values()) == [1]
    reports, missing = check_data("oxford_pets_objects", root)
    assert not missing
    assert "a trimap without a pet 1" in reports["trainval"].contents().lines[0]


def test_missing_parts_are_named(tmp_path: Path) -> None:
    row = data_sets()["oxford_pets_objects"][1]
    with pytest.raises(FileNotFoundError, match=r"images: no such folder.*oxford_pets_objects expects images/"):
        row.open(tmp_path, "trainval")
    root = pet_tree(tmp_path / "pets")
    (root / LIST).unlink()
    with pytest.raises(FileNotFoundError, match=r"trainval\.txt: no such file"):
        row.open(root, "trainval")


def test_the_folder_is_recognised_as_the_data_set_of_segmentation(tmp_path: Path) -> None:
    assert recognised_name(pet_tree(tmp_path)) == "oxford_pets"


def test_a_name_with_a_suffix_or_a_folder_is_found(tmp_path: Path) -> None:
    root = pet_tree(tmp_path)
    (root / LIST).write_text("/old/beagle_7.jpg 5 2 1\n")
    assert [image.instances[0].label for image in oxford_pets(root, "trainval").images] == [2]


@pytest.mark.skipif("DNLNET_DATA" not in os.environ, reason="the folder of real data is not set")
def test_the_real_data_has_one_object_per_image() -> None:
    root = Path(os.environ["DNLNET_DATA"]) / "oxford_pets_789"
    for split, count, left_out in (("trainval", 526, 0), ("test", 262, 1)):
        images = oxford_pets(root, split).require_complete()
        assert (len(images), sum(images.left_out.values())) == (count, left_out)
        assert all(len(image.instances) == 1 for image in images.images)
        for one in (image.instances[0] for image in images.images):
            bounds = one.outline.bounds()
            assert bounds is not None
            left, top, right, bottom = bounds
            assert one.box[0] <= left < right <= one.box[0] + one.box[2]
            assert one.box[1] <= top < bottom <= one.box[1] + one.box[3]
        names = [image.path.name for image in images.images]
        cats = [name for name, image in zip(names, images.images, strict=True) if image.instances[0].label == 1]
        assert cats == [name for name in names if name[0].isupper()]  # breeds of cats begin with a capital letter
