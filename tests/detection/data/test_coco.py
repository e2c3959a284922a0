import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from coco_trees import HIGH, WIDE, annotation, coco_tree, compressed, edit, rectangle, run_lengths, write_coco
from dnlnet.data.classes import distinct_colours
from dnlnet.data.problems import BadFileError
from dnlnet.detection.data.coco import SPLITS, open_coco, open_coco_file
from dnlnet.detection.data.objects import InstanceImages
from dnlnet.errors import shown
from trees import truncate, write_image


@pytest.fixture
def train(tmp_path: Path) -> InstanceImages:
    return open_coco(coco_tree(tmp_path), "train2017")


@pytest.fixture
def disc() -> Any:
    rows, columns = np.mgrid[:48, :64]
    return ((columns - 30) ** 2 + (rows - 20) ** 2 < 15**2).astype(np.uint8)


def one_cat(folder: Path, **changes: Any) -> InstanceImages:
    """Open a data set of one wide image with one cat whose annotation has these changes."""
    return open_coco_file(
        write_coco(folder / "mine.json", folder, {7: WIDE}, [annotation(1, 7, 3, (10, 5, 20, 15), **changes)]), folder
    )


def count_objects(images: InstanceImages) -> int:
    return sum(len(image.instances) for image in images.images)


def problems(images: InstanceImages) -> list[str]:
    return [f"{problem.path.name}: {problem.text}" for problem in images.problems]


def test_images_classes_and_objects_are_listed(train: InstanceImages, tmp_path: Path) -> None:
    assert (train.name, len(train), count_objects(train), train.problems) == ("coco train2017", 3, 4, ())
    assert train.classes.names == ("cat", "dog")  # in the order of the category ids
    assert train.classes.palette == distinct_colours(2)
    assert train.classes.numbers == (3, 9)
    assert [image.id for image in train.images] == [7, 5, 8]
    assert train.images[0].path == tmp_path / "train2017" / "000000000007.png"
    assert [image.size for image in train.images] == [WIDE, HIGH, WIDE]
    assert len(open_coco(tmp_path, "val2017")) == 1


def test_only_the_json_is_read_initially(train: InstanceImages) -> None:
    truncate(train.images[0].path)
    assert len(train.require_complete().for_training()) == 2
    with pytest.raises(BadFileError, match="cannot be read"):
        train.pixels(0)


def test_a_target_has_the_format_of_detectors(train: InstanceImages) -> None:
    pixels, target = train.pixels(0), train.target(0)
    assert pixels.shape == (*WIDE, 3)
    assert pixels.dtype == target.masks.dtype == np.uint8
    assert target.boxes.tolist() == [[10, 5, 30, 20], [40, 20, 50, 36]]
    assert (target.boxes.dtype, target.labels.dtype) == (np.float32, np.int64)
    assert target.labels.tolist() == [1, 2]
    assert target.area.tolist() == [300, 160]
    assert target.iscrowd.tolist() == [0, 0]
    assert target.image_id == 7
    for mask, box in zip(target.masks, ((10, 5, 20, 15), (40, 20, 10, 16)), strict=True):
        np.testing.assert_array_equal(mask, rectangle(WIDE, box))


def test_crowds_are_in_the_target_but_not_used_for_training(train: InstanceImages) -> None:
    assert train.target(1).iscrowd.tolist() == [0, 1]
    assert train.for_training().target(1).labels.tolist() == [2]


def test_an_image_without_objects_has_an_empty_target(train: InstanceImages) -> None:
    target = train.target(2)
    assert (target.boxes.shape, target.masks.shape, len(target)) == ((0, 4), (0, *WIDE), 0)


def test_objects_not_used_for_training_are_counted(train: InstanceImages) -> None:
    training = train.for_training()
    assert [image.id for image in training.images] == [7, 5]
    assert training.left_out == {"crowds": 1, "images without objects": 1}
    assert training.for_training().left_out == training.left_out


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bbox": [10, 5, 1, 15]}, "boxes of at most 1 pixel"),
        ({"bbox": [59.5, 5, 20, 15]}, "boxes of at most 1 pixel"),  # half a pixel of it is inside the image
        ({"bbox": [10, -9, 20, 10]}, "boxes of at most 1 pixel"),
        ({"segmentation": []}, "outlines that bound nothing"),
        ({"segmentation": [[1, 1, 5, 5]]}, "outlines that bound nothing"),
        ({"segmentation": [[1, 1, 5, 5, 9, 9]]}, "outlines that bound nothing"),
        ({"segmentation": {"size": list(WIDE), "counts": [2400]}}, "outlines that bound nothing"),
    ],
)
def test_degenerate_objects_are_skipped_and_counted(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    images = one_cat(tmp_path, **changes)
    assert count_objects(images.require_complete()) == 1
    assert images.for_training().left_out == {reason: 1, "images without objects": 1}


def test_boxes_are_clipped_to_the_image(tmp_path: Path) -> None:
    images = one_cat(tmp_path, bbox=[-3, 5, 80, 99])
    assert images.target(0).boxes.tolist() == [[0, 5, 60, 40]]


def test_polygons_are_drawn_at_the_requested_size(train: InstanceImages) -> None:
    target = train.target(0, (80, 120))
    assert target.boxes.tolist() == [[20, 10, 60, 40], [80, 40, 100, 72]]
    assert target.area.tolist() == [1200, 640]
    for mask, box in zip(target.masks, ((20, 10, 40, 30), (80, 40, 20, 32)), strict=True):
        np.testing.assert_array_equal(mask, rectangle((80, 120), box))


def test_polygons_and_both_run_length_formats_agree_with_their_shape(tmp_path: Path, disc: Any) -> None:
    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    polygon = np.stack([30.5 + 15 * np.cos(angles), 20.5 + 15 * np.sin(angles)], axis=1).ravel().tolist()
    shapes = ([polygon], run_lengths(disc), compressed(disc))
    entries = [annotation(n, 7, 3, (15, 5, 30, 30), segmentation=shape) for n, shape in enumerate(shapes)]
    path = write_coco(tmp_path / "mine.json", tmp_path, {7: (48, 64)}, entries)
    drawn, plain, text = open_coco_file(path, tmp_path).require_complete().target(0).masks
    np.testing.assert_array_equal(plain, disc)
    np.testing.assert_array_equal(text, disc)
    assert (drawn & disc).sum() / (drawn | disc).sum() > 0.95


def test_several_polygons_are_one_object(tmp_path: Path) -> None:
    parts = [annotation(0, 0, 0, box)["segmentation"][0] for box in ((0.0, 0.0, 5.0, 5.0), (3.0, 3.0, 6.0, 6.0))]
    mask = one_cat(tmp_path, segmentation=parts).target(0).masks[0]
    np.testing.assert_array_equal(mask, rectangle(WIDE, (0, 0, 5, 5)) | rectangle(WIDE, (3, 3, 6, 6)))


def test_broken_polygons_do_not_spoil_the_others(tmp_path: Path) -> None:
    good = annotation(0, 0, 0, (2, 3, 4, 5))["segmentation"][0]
    mask = one_cat(tmp_path, segmentation=[[1, 1, 9, 9], good, [1.0, 2, 3, 4, 5, 6, 7]]).target(0).masks[0]
    np.testing.assert_array_equal(mask, rectangle(WIDE, (2, 3, 4, 5)))


def test_flipping_twice_is_the_identity(train: InstanceImages) -> None:
    target = train.target(0)
    flipped = target.flipped()
    assert flipped.boxes.tolist() == [[30, 5, 50, 20], [10, 20, 20, 36]]
    np.testing.assert_array_equal(flipped.masks, target.masks[:, :, ::-1])
    again = flipped.flipped()
    np.testing.assert_array_equal(again.masks, target.masks)
    np.testing.assert_array_equal(again.boxes, target.boxes)


def test_objects_without_a_pixel_are_invisible(train: InstanceImages) -> None:
    target = train.target(0)
    assert target.visible() is target
    target.masks[0] = 0
    seen = target.visible()
    assert (seen.labels.tolist(), seen.boxes.tolist(), seen.masks.shape) == ([2], [[40, 20, 50, 36]], (1, *WIDE))


def test_images_can_be_sent_to_a_worker(train: InstanceImages) -> None:
    sent: InstanceImages = pickle.loads(pickle.dumps(train))
    np.testing.assert_array_equal(sent.target(1).masks, train.target(1).masks)


def test_area_and_iscrowd_and_id_may_be_left_out(tmp_path: Path) -> None:
    one_cat(tmp_path)
    edit(tmp_path / "mine.json", "annotations", 0, area=None, iscrowd=None, id=None)
    images = open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()
    assert (images.target(0).area.tolist(), images.target(0).iscrowd.tolist()) == ([300], [0])
    assert images.name == "mine"


def test_the_ground_truth_equals_the_file(train: InstanceImages) -> None:
    truth = train.truth()
    assert truth["categories"] == [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}]
    assert [image["id"] for image in truth["images"]] == [7, 5, 8]
    assert truth["annotations"][0] == {
        "id": 1,
        "image_id": 7,
        "category_id": 3,
        "bbox": [10, 5, 20, 15],
        "segmentation": compressed(rectangle(WIDE, (10, 5, 20, 15))),
        "area": 300,
        "iscrowd": 0,
    }
    assert [one["iscrowd"] for one in truth["annotations"]] == [0, 0, 0, 1]
    assert json.loads(json.dumps(truth)) == truth


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"{", "line 1"),
        (b"\xff\xfe\x00", "JSON"),
        (b"", "JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b"9" * 5000, "digits"),
        (b'{"images": [{"id": 1, "id": 2}]}', "'id'"),
        (b"[]", "list"),
        (b'{"images": [], "categories": []}', "annotations"),
        (b'{"images": {}, "annotations": [], "categories": []}', "images is {}"),
        (b'{"images": [], "annotations": [], "categories": []}', "categories"),
        (b'{"images": [], "annotations": [], "categories": [{"id": "1", "name": "a"}]}', "category 0 has the id '1'"),
        (
            b'{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
            "2 categories have the id 1",
        ),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: bytes, fact: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{path}: .*{fact}.*(expected|needs)"):
        open_coco_file(path, tmp_path)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json: no such file"):
        open_coco_file(root / "nowhere.json", root)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        open_coco_file(root / "annotations" / "instances_val2017.json", root / "nowhere")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"image_id": 99}, ["image_id 99"]),
        ({"category_id": 4}, ["category_id 4"]),
        ({"image_id": "7"}, ["image_id '7'"]),
        ({"bbox": None}, ["bbox nothing", "[left, top, width, height]"]),
        ({"bbox": [1, 2, float("nan"), 3]}, ["bbox [1, 2, nan, 3]", "[left, top, width, height]"]),
        ({"area": "big"}, ["area 'big'"]),
        ({"segmentation": None}, ["segmentation nothing", "polygons"]),
        ({"segmentation": ["a"]}, ["polygon 'a'", "numbers"]),
        ({"segmentation": [["1", "2"]]}, ["polygon ['1', '2']", "numbers"]),
        ({"segmentation": [[[1, 2], [3]]]}, ["polygon [[1, 2], [3]]", "numbers"]),
        ({"segmentation": [[1, 2, float("inf")]]}, ["polygon [1, 2, inf]", "numbers"]),
        ({"segmentation": {"size": [4, 4], "counts": [16]}}, ["[4, 4]", "40 x 60"]),
        ({"segmentation": {"size": list(WIDE), "counts": [5, 5]}}, ["10 pixels", "expected 2400"]),
        ({"segmentation": {"size": list(WIDE), "counts": [2401, -1]}}, ["run length of -1"]),
        ({"segmentation": {"size": list(WIDE), "counts": ["a"]}}, ["run lengths ['a']"]),
        ({"segmentation": {"size": list(WIDE), "counts": "a!"}}, ["character '!'"]),
        ({"segmentation": {"size": list(WIDE), "counts": "0oo"}}, ["run lengths", "cut off"]),
        ({"segmentation": {"size": list(WIDE), "counts": "o" * 50}}, ["character 'o'"]),
    ],
)
def test_a_bad_annotation_is_a_problem(tmp_path: Path, changes: dict[str, Any], facts: list[str]) -> None:
    images = one_cat(tmp_path, **changes)
    (problem,) = problems(images)
    assert problem.startswith("mine.json: annotation 1 has ")
    assert all(fact in problem for fact in facts), problem
    assert count_objects(images) == 0
    with pytest.raises(ValueError, match=re.escape(problem)):
        images.require_complete()


# Each of these values crashed the process inside pycocotools.
@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"segmentation": [[0, 0, far, 0, far, 9, 0, 9]]}, [f"({far:g}, 0)", "60 x 40"])
        for far in (1e300, -1e300, 1e18, 1e9, 2.0**31)
    ]
    + [
        ({"segmentation": [[0, 0, 59, 39] * 20_000]}, ["2360000 pixels", "at most 2097152"]),
        (
            {"segmentation": {"size": list(WIDE), "counts": [2**63 - 1, 2**63 - 1, 2402]}},
            ["18446744073709554016 pixels", "expected 2400"],
        ),
        ({"segmentation": {"size": list(WIDE), "counts": [2**64]}}, ["[184467440737"]),
    ],
)
def test_values_that_crash_pycocotools_never_reach_it(
    tmp_path: Path, changes: dict[str, Any], facts: list[str]
) -> None:
    test_a_bad_annotation_is_a_problem(tmp_path, changes, facts)


@pytest.mark.parametrize(
    "size", [(10**9, 60), (40, 2**32), (2**63, 60), (10**30, 60), (2**16, 2**16), (60_000, 60_000)]
)
def test_impossible_image_sizes_are_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    one_cat(tmp_path)
    edit(tmp_path / "mine.json", "images", 0, height=size[0], width=size[1])
    images = open_coco_file(tmp_path / "mine.json", tmp_path)
    assert problems(images)[0].startswith(f"mine.json: image 7 is {size[0]} x {size[1]} (height x width)")
    assert all(limit in problems(images)[0] for limit in ("65535", "178956970"))
    assert not len(images)


@pytest.mark.parametrize("value", [[7], {"a": 7}, True, 7.0, "7", -7, 2**63, 10**30, [[[[[[[7]]]]]]]])
@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_an_id_is_a_whole_number_of_64_bits(tmp_path: Path, key: str, value: Any) -> None:
    one_cat(tmp_path)
    edit(tmp_path / "mine.json", key, 0, id=value)
    kind = {"images": "image", "annotations": "annotation", "categories": "category"}[key]
    with pytest.raises(ValueError, match=re.escape(f"mine.json: {kind} 0 has the id {shown(value)}; expected")):
        open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()


@pytest.mark.parametrize(
    ("key", "changes", "fact"),
    [
        ("images", {"file_name": "/etc/passwd"}, "image 7 has the file_name '/etc/passwd'; expected a file in "),
        ("images", {"file_name": "../a.png"}, "image 7 has the file_name '../a.png'; expected a file in "),
        ("images", {"file_name": "."}, "image 7 has the file_name '.'; expected a file in "),
        ("images", {"file_name": "a\0.png"}, "image 7 has the file_name 'a\\x00.png'"),
        ("images", {"file_name": ["a.png"]}, "image 7 has the file_name ['a.png']"),
        ("images", {"height": "40"}, "image 7 has the height '40'"),
        ("images", {"width": 60.0}, "image 7 has the width 60.0"),
        ("annotations", {"bbox": [0, 0, 10**400, 9]}, "annotation 1 has the bbox [0, 0, 1000000"),
        ("annotations", {"area": 10**400}, "annotation 1 has the area 100000"),
        ("annotations", {"area": -5}, "annotation 1 has the area -5"),
        ("annotations", {"iscrowd": "no"}, "annotation 1 has the iscrowd 'no'; expected 0 or 1"),
        ("categories", {"name": "\x1b[31m"}, "category 9 has the name '\\x1b[31m'"),
        ("categories", {"name": "\ud800"}, "category 9 has the name '\\ud800'"),
        ("categories", {"name": "cat"}, "2 categories have the name 'cat'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(tmp_path: Path, key: str, changes: dict[str, Any], fact: str) -> None:
    one_cat(tmp_path)
    edit(tmp_path / "mine.json", key, 0, **changes)
    with pytest.raises(ValueError, match=re.escape(f"mine.json: {fact}")):
        open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()


@pytest.mark.parametrize("key", ["images", "annotations"])
def test_a_file_without_images_or_objects_is_a_problem(tmp_path: Path, key: str) -> None:
    one_cat(tmp_path)
    content = json.loads((tmp_path / "mine.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps({**content, key: []}))
    images = open_coco_file(tmp_path / "mine.json", tmp_path)
    assert problems(images)[0].startswith(f"mine.json: has no {key}")


def test_an_image_is_listed_once(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    edit(root / "annotations" / "instances_train2017.json", "images", 2, file_name="000000000007.png")
    (problem,) = problems(open_coco(root, "train2017"))
    assert problem.startswith("instances_train2017.json: 2 images have the file_name '000000000007.png'")


def test_a_missing_split_names_the_others(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    (root / "annotations" / "instances_val2017.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"val2017\.json: no such file .*instances_train2017\.json"):
        open_coco(root, "val2017")


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.json")
    with pytest.raises(FileNotFoundError, match=r"mine\.json: is a pipe"):
        open_coco_file(tmp_path / "mine.json", tmp_path)


def test_equal_faults_are_counted(tmp_path: Path) -> None:
    entries = [annotation(n, 7, 4, (1, 1, 9, 9)) for n in (21, 22, 23)]
    images = open_coco_file(write_coco(tmp_path / "mine.json", tmp_path, {7: WIDE}, entries), tmp_path)
    (problem,) = problems(images)
    assert problem.startswith("mine.json: annotation 21 (and 2 more) has the category_id 4")


def test_each_bad_image_is_skipped_with_a_problem(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    path = root / "annotations" / "instances_train2017.json"
    (root / "train2017" / "000000000005.png").unlink()
    edit(path, "images", 2, id=7)
    images = open_coco(root, "train2017")
    repeated, missing = problems(images)
    assert repeated.startswith("instances_train2017.json: 2 images have the id 7")
    assert missing == "000000000005.png: no such file"
    assert [image.id for image in images.images] == [7]
    with pytest.raises(ValueError, match=r"the id 7.*1 more problem"):
        images.require_complete()
    edit(path, "images", 2, id=8, width=0)
    assert "image 8 is 40 x 0 (height x width)" in problems(open_coco(root, "train2017"))[0]


def test_an_image_of_another_size_is_refused(train: InstanceImages) -> None:
    write_image(train.images[0].path, size=(41, 60))
    with pytest.raises(BadFileError, match=r"7\.png: is 60 x 41, .* 60 x 40 \(width x height\)"):
        train.pixels(0)


def test_a_rotated_image_is_read_in_the_orientation_of_its_annotation(train: InstanceImages) -> None:
    exif = Image.Exif()
    exif[274] = 6  # rotate by 90 degrees
    pixels = np.random.default_rng(0).integers(0, 256, (*WIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(train.images[0].path, exif=exif)
    np.testing.assert_array_equal(train.pixels(0), pixels)
    Image.fromarray(pixels).save(train.images[1].path, exif=exif)  # annotated upright
    np.testing.assert_array_equal(train.pixels(1), np.rot90(pixels, -1))


def test_grey_images_become_rgb(train: InstanceImages) -> None:
    Image.new("L", WIDE[::-1], 7).save(train.images[0].path)
    assert train.pixels(0)[0, 0].tolist() == [7, 7, 7]


def test_every_object_of_real_coco_is_used_or_counted(real_data: Path) -> None:
    expected = {"train2017": (240, 2004, 17, 3), "val2017": (112, 905, 9, 1)}
    for split in SPLITS:
        count, instances, crowds, empty = expected[split]
        images = open_coco(real_data / "coco_micro", split).require_complete()
        assert (len(images), count_objects(images), len(images.classes)) == (count, instances, 80)
        assert {one.label for image in images.images for one in image.instances} == set(range(1, 81))
        assert images.classes.numbers[-1] == 90
        training = images.for_training()
        assert training.left_out == {"crowds": crowds, "images without objects": empty}
        drawn = [training.target(index) for index in range(len(training))]
        assert sum(len(target.visible()) for target in drawn) == instances - crowds
        for index, target in enumerate(drawn):
            height, width = training.images[index].size
            assert (target.boxes[:, 2:] > target.boxes[:, :2]).all()
            assert (target.boxes >= 0).all()
            assert (target.boxes <= (width, height, width, height)).all()
    assert images.pixels(0).shape == (*images.images[0].size, 3)
