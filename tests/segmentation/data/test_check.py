import json
from pathlib import Path

import numpy as np
import pytest

from dnlnet.data.labelled import LabelledImages
from dnlnet.segmentation.data.camvid import camvid
from dnlnet.segmentation.data.check import PixelReport, check_pixels, require_labels
from dnlnet.segmentation.data.folder import folder
from observer import Recorder
from trees import camvid_tree, colour_folder_tree, folder_tree, truncate, write_image, write_labels


def texts(report: PixelReport, root: Path) -> list[str]:
    """Return the problems, with paths relative to the root."""
    return [str(problem).removeprefix(f"{root}/") for problem in report.problems]


@pytest.fixture
def images(tmp_path: Path) -> LabelledImages:
    """Write a valid data set with the pairs a and deep/b."""
    return folder(folder_tree(tmp_path), "train")


def test_a_valid_data_set_is_counted(images: LabelledImages) -> None:
    write_labels(images.pairs[0].labels, (0, 0, 0, 1))
    report = check_pixels(images)
    assert (report.name, report.images, report.problems) == ("folder train", 2, ())
    # 768 pixels each: 3/4 and 1/4 in the first; a quarter each of 0, 1, 2 and 255 in the second
    assert report.class_pixels == (576 + 192, 192 + 192, 192)
    assert report.ignored_pixels == 192
    assert report.class_shares == [768 / 1344, 384 / 1344, 192 / 1344]
    assert report.ignored_share == 1 / 8
    assert report.sizes == {(32, 24): 2}


def test_colour_masks_are_counted(tmp_path: Path) -> None:
    report = check_pixels(folder(colour_folder_tree(tmp_path), "train"))
    assert report.class_shares == [0.5, 0.5]
    assert report.ignored_share == pytest.approx(1 / 3)


def test_sizes_are_counted_and_sorted_by_frequency(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    for name, size in (("d", (8, 9)), ("e", (24, 32)), ("f", (9, 8))):
        write_image(root / "images" / "val" / f"{name}.jpg", size=size)
        write_labels(root / "masks" / "val" / f"{name}.png", (0,), size=size)
    assert list(check_pixels(folder(root, "val")).sizes.items()) == [((32, 24), 2), ((8, 9), 1), ((9, 8), 1)]


def test_every_kind_of_fault_is_found_in_one_run(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    for name in "abcdefgh":
        write_image(root / "images" / "all" / f"{name}.jpg")
        write_labels(root / "masks" / "all" / f"{name}.png", (0, 1))
    truncate(root / "images" / "all" / "a.jpg")
    write_labels(root / "masks" / "all" / "b.png", np.random.default_rng(0).integers(0, 3, 768))
    truncate(root / "masks" / "all" / "b.png")
    write_labels(root / "masks" / "all" / "c.png", (0,), size=(24, 31))
    write_labels(root / "masks" / "all" / "d.png", (0, 3))
    (root / "masks" / "all" / "e.png").unlink()
    (root / "images" / "all" / "f.jpg").unlink()
    (root / "images" / "all" / "g.jpg").write_text("not an image")
    report = check_pixels(folder(root, "all"))
    found = texts(report, root)
    expected = [
        "images/all/e.jpg: has no label file",
        "masks/all/f.png: has no image",
        "images/all/a.jpg: cannot be read",
        "masks/all/b.png: cannot be read",
        "masks/all/c.png: 31 x 24",
        "masks/all/d.png: label 3 at row 0, column 1",
        "images/all/g.jpg: is not an image",
    ]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found
    assert report.images == 6
    assert report.sizes == {(32, 24): 4}  # b, c, d, h


def test_a_bad_image_does_not_hide_bad_labels(images: LabelledImages, tmp_path: Path) -> None:
    truncate(images.pairs[0].image)
    write_labels(images.pairs[0].labels, (9,))
    found = texts(check_pixels(images), tmp_path)
    assert [text.split(":")[0] for text in found] == ["images/train/a.jpg", "masks/train/a.png"]
    assert "label 9" in found[1]


def test_a_wrong_size_does_not_hide_a_wrong_label(images: LabelledImages, tmp_path: Path) -> None:
    write_labels(images.pairs[0].labels, (9,), size=(5, 5))
    found = texts(check_pixels(images), tmp_path)
    assert ["5 x 5 labels" in found[0], "label 9" in found[1], len(found)] == [True, True, 2]


def test_files_that_vanish_while_checking_are_problems(images: LabelledImages, tmp_path: Path) -> None:
    images.pairs[0].image.unlink()
    images.pairs[0].labels.unlink()
    assert texts(check_pixels(images), tmp_path) == [
        "images/train/a.jpg: no such file",
        "masks/train/a.png: no such file",
    ]


def test_without_readable_labels_the_shares_are_zero(images: LabelledImages) -> None:
    for pair in images.pairs:
        pair.labels.write_bytes(b"")
    report = check_pixels(images)
    assert report.class_shares == [0, 0, 0]
    assert report.ignored_share == 0
    assert len(report.problems) == 2


def test_progress_advances_once_for_each_pair(images: LabelledImages) -> None:
    truncate(images.pairs[0].image)
    recorder = Recorder()
    check_pixels(images, recorder)
    assert [step[1:3] for step in recorder.steps] == [(1, 2), (2, 2)]


def test_the_report_can_be_written_as_json(images: LabelledImages) -> None:
    truncate(images.pairs[1].labels)
    report = check_pixels(images)
    content = json.loads(json.dumps(report.to_json()))
    assert content["classes"][1] == {"name": "road", "pixels": 192, "share": 1 / 3}
    assert content["sizes"] == [{"width": 32, "height": 24, "images": 2}]
    assert content["problems"] == [{"path": str(images.pairs[1].labels), "text": report.problems[0].text}]
    assert (content["name"], content["images"]) == ("folder train", 2)
    assert (content["ignored_pixels"], content["ignored_share"]) == (192, 0.25)


def test_real_camvid_has_no_faults(real_data: Path) -> None:
    report = check_pixels(camvid(real_data / "camvid", "val"))
    assert report.problems == ()
    assert report.sizes == {(480, 360): 101}
    shares = dict(zip(report.class_names, report.class_shares, strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert sorted(shares, key=lambda name: -shares[name])[:3] == ["Road", "Building", "Tree"]


def test_labels_without_a_class_are_a_problem(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    for path in (root / "valannot").iterdir():
        write_labels(path, [11])
    report = check_pixels(camvid(root, "val"))
    assert [str(problem) for problem in report.problems] == [
        f"{root}/valannot: no pixel of the 1 label files has a class: all are ignored; nothing to train on"
    ]
    assert (report.ignored_share, set(report.class_pixels)) == (1.0, {0})


def with_labels(root: Path, names: str, *values: int) -> LabelledImages:
    """Write two images whose labels have only these values."""
    root.mkdir(exist_ok=True)
    (root / "classes.yaml").write_text(f"names: {names}")
    for name in ("a", "b"):
        write_image(root / "images" / "train" / f"{name}.jpg")
        write_labels(root / "masks" / "train" / f"{name}.png", values)
    return folder(root, "train")


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        ("[pet]", (0, 255), "folder train: 'pet' is the only class"),
        ("[sky, pet]", (255,), "folder train: no pixel of 2 label files"),
    ],
)
def test_labels_without_two_classes_are_refused(
    names: str, values: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        require_labels(with_labels(tmp_path, names, *values))


def test_a_single_class_in_the_labels_is_reported(tmp_path: Path) -> None:
    recorder = Recorder()
    require_labels(with_labels(tmp_path / "one", "[sky, pet]", 1, 255), recorder)
    (text,) = recorder.said
    assert text.startswith("folder train: 'pet' is the only class in 2 label files")
    require_labels(with_labels(tmp_path / "two", "[sky, pet]", 1, 0), recorder)
    assert len(recorder.said) == 1


def from_one(root: Path, settings: str = "", values: tuple[int, ...] = (1, 2, 3)) -> LabelledImages:
    """Open images whose masks number three classes from 1 on."""
    for name in ("a", "b"):
        write_image(root / "images" / "train" / f"{name}.jpg")
        write_labels(root / "masks" / "train" / f"{name}.png", values)
    (root / "classes.yaml").write_text(f"names: [pet, background, border]\n{settings}")
    return folder(root, "train")


@pytest.mark.parametrize("settings", ["", "ignore: 3\n"])
def test_labels_that_start_at_1_are_recognised(settings: str, tmp_path: Path) -> None:
    images = from_one(tmp_path, settings)
    assert "first: 1" in (check_pixels(images).hint or "")
    corrected = check_pixels(from_one(tmp_path, "first: 1\n"))
    assert (corrected.hint, corrected.problems) == (None, ())
    assert corrected.class_pixels == (512, 512, 512)
    assert corrected.ignored_pixels == 0


def test_training_on_labels_that_start_at_1_stops_with_the_correction(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.png: label 3 at row 0, column 2; expected 0\.\.2 .*first: 1"):
        require_labels(from_one(tmp_path))
    require_labels(from_one(tmp_path, "first: 1\n"))


@pytest.mark.parametrize(
    ("settings", "values", "facts"),
    [
        ("", (0, 1, 2, 3), ["ignore: 3", "first: 1 and ignore: 0"]),
        ("", (0, 1, 2, 9), ["ignore: 9"]),
        ("first: 1\n", (0, 1, 2, 3), ["ignore: 0"]),
        ("", (0, 1, 2, 255), []),
        ("ignore: 3\n", (0, 1, 2, 3), []),
        ("first: 1\nignore: 0\n", (0, 1, 2, 3), []),
        ("", (0, 8, 9), []),
    ],
)
def test_a_hint_fits_the_numbers_in_the_masks(
    settings: str, values: tuple[int, ...], facts: list[str], tmp_path: Path
) -> None:
    hint = check_pixels(from_one(tmp_path, settings, values)).hint
    assert bool(facts) == (hint is not None)
    assert all(fact in (hint or "") for fact in facts)
