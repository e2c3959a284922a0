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
from dnlnet.data.labelled import BadFileError
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


def of_one(folder: Path, **changes: Any) -> InstanceImages:
    """A data set of one wide image with one cat, changed."""
    return open_coco_file(
        write_coco(folder / "mine.json", folder, {7: WIDE}, [annotation(1, 7, 3, (10, 5, 20, 15), **changes)]), folder
    )


def problems(images: InstanceImages) -> list[str]:
    return [f"{problem.path.name}: {problem.text}" for problem in images.problems]


def test_images_classes_and_objects_are_listed(train: InstanceImages, tmp_path: Path) -> None:
    assert (train.name, len(train), train.instance_count, train.problems) == ("coco train2017", 3, 4, ())
    assert train.classes.names == ("cat", "dog")  # in the order of the category ids
    assert train.classes.palette == distinct_colours(2)
    assert train.categories == (3, 9)
    assert [train.category_of(label) for label in (1, 2)] == [3, 9]
    assert [image.number for image in train.images] == [7, 5, 8]
    assert train.images[0].path == tmp_path / "train2017" / "000000000007.png"
    assert [image.size for image in train.images] == [WIDE, HIGH, WIDE]
    assert len(open_coco(tmp_path, "val2017")) == 1


def test_nothing_but_the_json_is_read_until_asked(train: InstanceImages) -> None:
    truncate(train.images[0].path)
    assert len(train.require_complete().for_training()) == 2
    with pytest.raises(BadFileError, match="cannot be read"):
        train.picture(0)


def test_a_target_has_what_detectors_take(train: InstanceImages) -> None:
    picture, target = train.read(0)
    assert picture.shape == (*WIDE, 3)
    assert picture.dtype == target.masks.dtype == np.uint8
    assert target.boxes.tolist() == [[10, 5, 30, 20], [40, 20, 50, 36]]
    assert (target.boxes.dtype, target.labels.dtype) == (np.float32, np.int64)
    assert target.labels.tolist() == [1, 2]
    assert target.area.tolist() == [300, 160]
    assert target.crowd.tolist() == [False, False]
    assert target.image == 7
    for mask, box in zip(target.masks, ((10, 5, 20, 15), (40, 20, 10, 16)), strict=True):
        np.testing.assert_array_equal(mask, rectangle(WIDE, box))


def test_crowds_are_in_the_target_but_not_learnt_from(train: InstanceImages) -> None:
    assert train.target(1).crowd.tolist() == [False, True]
    assert train.for_training().target(1).labels.tolist() == [2]


def test_an_image_without_objects_has_an_empty_target(train: InstanceImages) -> None:
    target = train.target(2)
    assert (target.boxes.shape, target.masks.shape, len(target)) == ((0, 4), (0, *WIDE), 0)


def test_what_is_not_learnt_from_is_counted(train: InstanceImages) -> None:
    training = train.for_training()
    assert [image.number for image in training.images] == [7, 5]
    assert training.left_out == {"crowds": 1, "images without objects": 1}
    assert training.for_training().left_out == training.left_out
    kept = train.for_training(keep_empty=True)
    assert (len(kept), kept.left_out) == (3, {"crowds": 1})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bbox": [10, 5, 1, 15]}, "boxes of at most 1 pixel"),
        ({"bbox": [59.5, 5, 20, 15]}, "boxes of at most 1 pixel"),  # half a pixel of it is in the image
        ({"bbox": [10, -9, 20, 10]}, "boxes of at most 1 pixel"),
        ({"segmentation": []}, "outlines that bound nothing"),
        ({"segmentation": [[1, 1, 5, 5]]}, "outlines that bound nothing"),
        ({"segmentation": [[1, 1, 5, 5, 9, 9]]}, "outlines that bound nothing"),
        ({"segmentation": {"size": list(WIDE), "counts": [2400]}}, "outlines that bound nothing"),
    ],
)
def test_degenerate_objects_are_left_out_and_counted(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    images = of_one(tmp_path, **changes)
    assert images.require_complete().instance_count == 1
    assert images.for_training().left_out == {reason: 1, "images without objects": 1}


def test_boxes_are_clipped_to_the_image(tmp_path: Path) -> None:
    images = of_one(tmp_path, bbox=[-3, 5, 80, 99])
    assert images.target(0).boxes.tolist() == [[0, 5, 60, 40]]


def test_polygons_are_drawn_at_the_size_asked_for(train: InstanceImages) -> None:
    target = train.target(0, (80, 120))
    assert target.boxes.tolist() == [[20, 10, 60, 40], [80, 40, 100, 72]]
    assert target.area.tolist() == [1200, 640]
    for mask, box in zip(target.masks, ((20, 10, 40, 30), (80, 40, 20, 32)), strict=True):
        np.testing.assert_array_equal(mask, rectangle((80, 120), box))


def test_polygons_and_both_run_lengths_agree_with_their_shape(tmp_path: Path, disc: Any) -> None:
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
    mask = of_one(tmp_path, segmentation=parts).target(0).masks[0]
    np.testing.assert_array_equal(mask, rectangle(WIDE, (0, 0, 5, 5)) | rectangle(WIDE, (3, 3, 6, 6)))


def test_broken_polygons_do_not_spoil_the_others(tmp_path: Path) -> None:
    good = annotation(0, 0, 0, (2, 3, 4, 5))["segmentation"][0]
    mask = of_one(tmp_path, segmentation=[[1, 1, 9, 9], good, [1.0, 2, 3, 4, 5, 6, 7]]).target(0).masks[0]
    np.testing.assert_array_equal(mask, rectangle(WIDE, (2, 3, 4, 5)))


def test_flipping_twice_is_the_identity(train: InstanceImages) -> None:
    target = train.target(0)
    flipped = target.flipped()
    assert flipped.boxes.tolist() == [[30, 5, 50, 20], [10, 20, 20, 36]]
    np.testing.assert_array_equal(flipped.masks, target.masks[:, :, ::-1])
    again = flipped.flipped()
    np.testing.assert_array_equal(again.masks, target.masks)
    np.testing.assert_array_equal(again.boxes, target.boxes)


def test_objects_without_a_pixel_are_not_visible(train: InstanceImages) -> None:
    target = train.target(0)
    assert target.visible() is target
    target.masks[0] = 0
    seen = target.visible()
    assert (seen.labels.tolist(), seen.boxes.tolist(), seen.masks.shape) == ([2], [[40, 20, 50, 36]], (1, *WIDE))


def test_images_can_be_sent_to_a_worker(train: InstanceImages) -> None:
    sent: InstanceImages = pickle.loads(pickle.dumps(train))
    np.testing.assert_array_equal(sent.target(1).masks, train.target(1).masks)


def test_area_and_iscrowd_and_id_may_be_left_out(tmp_path: Path) -> None:
    of_one(tmp_path)
    edit(tmp_path / "mine.json", "annotations", 0, area=None, iscrowd=None, id=None)
    images = open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()
    assert (images.target(0).area.tolist(), images.target(0).crowd.tolist()) == ([300], [False])
    assert images.name == "mine"


def test_the_truth_is_what_the_file_says(train: InstanceImages) -> None:
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
    ("content", "message"),
    [
        (b"{", r"is not JSON: Expecting .* in line 1; expected COCO's instances format"),
        (b"\xff\xfe\x00", "is not JSON: "),
        (b"", "is not JSON: "),
        (b"[" * 100_000, "is nested too deeply; expected COCO's instances format"),
        (b'{"a":' * 100_000, "is nested too deeply; expected COCO's instances format"),
        (b"9" * 5000, "has a number of too many digits; expected COCO's instances format"),
        (b'{"images": [{"id": 1, "id": 2}]}', "the key 'id' is given twice; expected COCO's instances format"),
        (b"[]", "holds a list; expected COCO's instances format: images, annotations and categories, a list each"),
        (b'{"images": [], "categories": []}', "has no annotations; expected COCO's instances format"),
        (b'{"images": {}, "annotations": [], "categories": []}', "images is {} and not a list; expected COCO's"),
        (b'{"images": [], "annotations": [], "categories": []}', "has no categories; expected an id and a name"),
        (
            b'{"images": [], "annotations": [], "categories": [{"id": "1", "name": "a"}]}',
            "category 0 has the id '1'; expected",
        ),
        (
            b'{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
            "2 categories have the id 1; each needs its own",
        ),
    ],
)
def test_a_file_that_is_not_of_the_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{path}: {message}"):
        open_coco_file(path, tmp_path)


def test_files_and_folders_that_are_not_there_are_named(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json: no such file"):
        open_coco_file(root / "nowhere.json", root)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        open_coco_file(root / "annotations" / "instances_val2017.json", root / "nowhere")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"image_id": 99}, "annotation 1 has the image_id 99, which is not among the images"),
        ({"category_id": 4}, "annotation 1 has the category_id 4, which is not among the categories"),
        ({"image_id": "7"}, "annotation 1 has the image_id '7'; expected the id of one of the images"),
        ({"bbox": None}, "annotation 1 has the bbox nothing; expected [left, top, width, height] in pixels"),
        ({"bbox": [1, 2, float("nan"), 3]}, "annotation 1 has the bbox [1, 2, nan, 3]; expected [left, top,"),
        ({"area": "big"}, "annotation 1 has the area 'big'; expected a number of pixels"),
        ({"segmentation": None}, "annotation 1 has the segmentation nothing; expected polygons"),
        ({"segmentation": ["a"]}, "annotation 1 has the polygon 'a'; expected a list of numbers"),
        ({"segmentation": [["1", "2"]]}, "annotation 1 has the polygon ['1', '2']; expected a list of numbers"),
        ({"segmentation": [[[1, 2], [3]]]}, "annotation 1 has the polygon [[1, 2], [3]]; expected a list of numbers"),
        ({"segmentation": [[1, 2, float("inf")]]}, "annotation 1 has the polygon [1, 2, inf]; expected a list"),
        (
            {"segmentation": {"size": [4, 4], "counts": [16]}},
            "annotation 1 has run lengths of the size [4, 4] for an image of 40 x 60 (height x width)",
        ),
        (
            {"segmentation": {"size": list(WIDE), "counts": [5, 5]}},
            "annotation 1 has run lengths of 10 pixels in all; expected 2400",
        ),
        (
            {"segmentation": {"size": list(WIDE), "counts": [2401, -1]}},
            "annotation 1 has a run length of -1; expected none below 0",
        ),
        ({"segmentation": {"size": list(WIDE), "counts": ["a"]}}, "annotation 1 has the run lengths ['a']; expected"),
        ({"segmentation": {"size": list(WIDE), "counts": "a!"}}, "annotation 1 has the character '!' in its run"),
        ({"segmentation": {"size": list(WIDE), "counts": "0oo"}}, "annotation 1 has run lengths that are cut off"),
        ({"segmentation": {"size": list(WIDE), "counts": "o" * 50}}, "annotation 1 has the character 'o' in its run"),
    ],
)
def test_a_bad_annotation_is_one_sentence(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    images = of_one(tmp_path, **changes)
    assert [problem.startswith(f"mine.json: {text}") for problem in problems(images)] == [True], problems(images)
    assert images.instance_count == 0
    with pytest.raises(ValueError, match=re.escape(text)):
        images.require_complete()


# Each of these crashed the process inside pycocotools.
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"segmentation": [[0, 0, far, 0, far, 9, 0, 9]]},
            f"annotation 1 has a polygon with the point ({far:g}, 0), far",
        )
        for far in (1e300, -1e300, 1e18, 1e9, 2.0**31)
    ]
    + [
        (
            {"segmentation": [[0, 0, 59, 39] * 20_000]},
            "annotation 1 has a polygon with a border of 2360000 pixels; expected at most 2097152",
        ),
        (
            {"segmentation": {"size": list(WIDE), "counts": [2**63 - 1, 2**63 - 1, 2402]}},
            "annotation 1 has run lengths of 18446744073709554016 pixels in all; expected 2400",
        ),
        ({"segmentation": {"size": list(WIDE), "counts": [2**64]}}, "annotation 1 has the run lengths [184467440737"),
    ],
)
def test_what_ends_pycocotools_never_reaches_it(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    test_a_bad_annotation_is_one_sentence(tmp_path, changes, text)


@pytest.mark.parametrize(
    "size", [(10**9, 60), (40, 2**32), (2**63, 60), (10**30, 60), (2**16, 2**16), (60_000, 60_000)]
)
def test_sizes_that_no_picture_has_are_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    of_one(tmp_path)
    edit(tmp_path / "mine.json", "images", 0, height=size[0], width=size[1])
    images = open_coco_file(tmp_path / "mine.json", tmp_path)
    expected = "expected 1..65535 pixels each, and 178956970 in all at most"
    assert problems(images)[0] == f"mine.json: image 7 is {size[0]} x {size[1]} (height x width); {expected}"
    assert not len(images)


@pytest.mark.parametrize("value", [[7], {"a": 7}, True, 7.0, "7", -7, 2**63, 10**30, [[[[[[[7]]]]]]]])
@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_an_id_is_a_whole_number_of_64_bits(tmp_path: Path, key: str, value: Any) -> None:
    of_one(tmp_path)
    edit(tmp_path / "mine.json", key, 0, id=value)
    kind = {"images": "image", "annotations": "annotation", "categories": "category"}[key]
    text = f"{kind} 0 has the id {shown(value)}; expected a whole number of 0 or more, in 64 bits"
    with pytest.raises(ValueError, match=re.escape(f"mine.json: {text}")):
        open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()


@pytest.mark.parametrize(
    ("key", "changes", "text"),
    [
        ("images", {"file_name": "/etc/passwd"}, "image 7 has the file_name '/etc/passwd'; expected a file in "),
        ("images", {"file_name": "../a.png"}, "image 7 has the file_name '../a.png'; expected a file in "),
        ("images", {"file_name": "."}, "image 7 has the file_name '.'; expected a file in "),
        ("images", {"file_name": "a\0.png"}, "image 7 has the file_name 'a\\x00.png'; expected text"),
        ("images", {"file_name": ["a.png"]}, "image 7 has the file_name ['a.png']; expected text"),
        ("images", {"height": "40"}, "image 7 has the height '40'; expected a whole number of pixels"),
        ("images", {"width": 60.0}, "image 7 has the width 60.0; expected a whole number of pixels"),
        ("annotations", {"bbox": [0, 0, 10**400, 9]}, "annotation 1 has the bbox [0, 0, 1000000"),
        ("annotations", {"area": 10**400}, "annotation 1 has the area 100000"),
        ("annotations", {"area": -5}, "annotation 1 has the area -5; expected a number of pixels"),
        ("annotations", {"iscrowd": "no"}, "annotation 1 has the iscrowd 'no'; expected 0 or 1"),
        ("categories", {"name": "\x1b[31m"}, "category 9 has the name '\\x1b[31m'; expected text"),
        ("categories", {"name": "\ud800"}, "category 9 has the name '\\ud800'; expected text"),
        ("categories", {"name": "cat"}, "2 categories have the name 'cat'; each needs its own"),
    ],
)
def test_a_value_of_a_wrong_kind_is_one_sentence(
    tmp_path: Path, key: str, changes: dict[str, Any], text: str
) -> None:
    of_one(tmp_path)
    edit(tmp_path / "mine.json", key, 0, **changes)
    with pytest.raises(ValueError, match=re.escape(f"mine.json: {text}")):
        open_coco_file(tmp_path / "mine.json", tmp_path).require_complete()


@pytest.mark.parametrize("key", ["images", "annotations"])
def test_a_file_without_images_or_objects_is_told(tmp_path: Path, key: str) -> None:
    of_one(tmp_path)
    content = json.loads((tmp_path / "mine.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps({**content, key: []}))
    images = open_coco_file(tmp_path / "mine.json", tmp_path)
    assert problems(images)[0] == f"mine.json: has no {key}; expected at least one"


def test_a_picture_is_listed_once(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    edit(root / "annotations" / "instances_train2017.json", "images", 2, file_name="000000000007.png")
    assert problems(open_coco(root, "train2017")) == [
        "instances_train2017.json: 2 images have the file_name '000000000007.png'; each needs its own"
    ]


def test_a_split_that_is_not_there_names_the_others(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    (root / "annotations" / "instances_val2017.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"val2017\.json: no such file \(there are instances_train2017\.json\)"
    ):
        open_coco(root, "val2017")


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.json")
    with pytest.raises(FileNotFoundError, match=r"mine\.json: is a pipe; expected a file"):
        open_coco_file(tmp_path / "mine.json", tmp_path)


def test_equal_faults_are_counted(tmp_path: Path) -> None:
    entries = [annotation(n, 7, 4, (1, 1, 9, 9)) for n in (21, 22, 23)]
    images = open_coco_file(write_coco(tmp_path / "mine.json", tmp_path, {7: WIDE}, entries), tmp_path)
    assert problems(images) == [
        "mine.json: annotation 21 (and 2 more) has the category_id 4, which is not among the categories"
    ]


def test_bad_images_are_left_out_with_a_problem_each(tmp_path: Path) -> None:
    root = coco_tree(tmp_path)
    path = root / "annotations" / "instances_train2017.json"
    (root / "train2017" / "000000000005.png").unlink()
    edit(path, "images", 2, id=7)
    images = open_coco(root, "train2017")
    assert problems(images) == [
        "instances_train2017.json: 2 images have the id 7; each needs its own",
        "000000000005.png: no such file",
    ]
    assert [image.number for image in images.images] == [7]
    with pytest.raises(ValueError, match=r"each needs its own \(and 1 more problems: dnlnet data check shows them\)"):
        images.require_complete()
    edit(path, "images", 2, id=8, width=0)
    assert "image 8 is 40 x 0 (height x width); expected 1..65535" in problems(open_coco(root, "train2017"))[0]


def test_a_picture_of_another_size_is_refused(train: InstanceImages) -> None:
    write_image(train.images[0].path, size=(41, 60))
    text = r"7\.png: is 60 x 41, but its annotations are for 60 x 40 \(width x height\); put the annotated picture"
    with pytest.raises(BadFileError, match=text):
        train.picture(0)


def test_a_turned_picture_is_read_as_it_was_annotated(train: InstanceImages, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # to be turned by 90 degrees
    pixels = np.random.default_rng(0).integers(0, 256, (*WIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(train.images[0].path, exif=exif)
    np.testing.assert_array_equal(train.picture(0), pixels)
    Image.fromarray(pixels).save(train.images[1].path, exif=exif)  # annotated upright
    np.testing.assert_array_equal(train.picture(1), np.rot90(pixels, -1))


def test_grey_pictures_become_rgb(train: InstanceImages) -> None:
    Image.new("L", WIDE[::-1], 7).save(train.images[0].path)
    assert train.picture(0)[0, 0].tolist() == [7, 7, 7]


def test_labels_outside_the_classes_are_refused(train: InstanceImages) -> None:
    for label in (0, 3):
        with pytest.raises(ValueError, match=rf"label {label} is outside 1\.\.2"):
            train.category_of(label)


def test_real_coco_is_used_whole_or_counted(real_data: Path) -> None:
    expected = {"train2017": (240, 2004, 17, 3), "val2017": (112, 905, 9, 1)}
    for split in SPLITS:
        count, instances, crowds, empty = expected[split]
        images = open_coco(real_data / "coco_micro", split).require_complete()
        assert (len(images), images.instance_count, len(images.classes)) == (count, instances, 80)
        assert {one.label for image in images.images for one in image.instances} == set(range(1, 81))
        assert images.categories[-1] == 90
        training = images.for_training()
        assert training.left_out == {"crowds": crowds, "images without objects": empty}
        drawn = [training.target(index) for index in range(len(training))]
        assert sum(len(target.visible()) for target in drawn) == instances - crowds
        for index, target in enumerate(drawn):
            height, width = training.images[index].size
            assert (target.boxes[:, 2:] > target.boxes[:, :2]).all()
            assert (target.boxes >= 0).all()
            assert (target.boxes <= (width, height, width, height)).all()
    assert images.picture(0).shape == (*images.images[0].size, 3)
