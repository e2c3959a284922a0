from collections.abc import Callable
from pathlib import Path

import pytest

from dnlnet.data.labelled import LabelledImages
from dnlnet.data.problems import BadFileError
from dnlnet.segmentation.data.pascal_context import CLASSES, CLASSES_60, pascal_context, pascal_context_60
from trees import pascal_context_tree, repeated, write_labels


@pytest.mark.parametrize("inner", ["", "VOC2010", "VOCdevkit/VOC2010"])
def test_the_root_may_be_the_folder_or_a_parent(tmp_path: Path, inner: str) -> None:
    images = pascal_context(pascal_context_tree(tmp_path, inner), "val").require_complete()
    assert [pair.image.name for pair in images.pairs] == ["2008_000002.jpg"]
    assert [pair.labels.name for pair in images.pairs] == ["2008_000002.png"]


def test_the_list_sets_the_images_of_a_split_and_their_order(tmp_path: Path) -> None:
    images = pascal_context(pascal_context_tree(tmp_path), "train").require_complete()
    assert [pair.image.stem for pair in images.pairs] == ["2008_000003", "2008_000001"]


def test_59_classes_exclude_the_background(tmp_path: Path) -> None:
    images = pascal_context(pascal_context_tree(tmp_path), "val")
    assert len(images.classes) == 59
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([255, *range(59), 255])


def test_60_classes_start_with_the_background(tmp_path: Path) -> None:
    images = pascal_context_60(pascal_context_tree(tmp_path), "val")
    assert len(images.classes) == 60
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([*range(60), 255])


def test_the_60_classes_are_the_background_and_the_59_in_alphabetical_order() -> None:
    assert CLASSES_60.names == ("background", *CLASSES.names)
    assert CLASSES_60.palette == ((0, 0, 0), *CLASSES.palette)
    assert sorted(set(CLASSES.names)) == list(CLASSES.names)


@pytest.mark.parametrize("function", [pascal_context, pascal_context_60])
def test_a_label_above_59_is_an_error(tmp_path: Path, function: Callable[[Path, str], LabelledImages]) -> None:
    images = function(pascal_context_tree(tmp_path), "val")
    write_labels(images.pairs[0].labels, (60,))
    with pytest.raises(BadFileError, match=r"label 60 at .*1\.\.59"):
        images.decoded(0, images.open_labels(0))


def test_a_listed_name_without_files_is_a_problem(tmp_path: Path) -> None:
    folder = pascal_context_tree(tmp_path) / "VOC2010"
    (folder / "JPEGImages" / "2008_000003.jpg").unlink()
    (folder / "SegmentationClassContext" / "2008_000003.png").unlink()
    images = pascal_context(tmp_path, "train")
    list_file = folder / "ImageSets" / "SegmentationContext" / "train.txt"
    assert [str(problem) for problem in images.problems] == [
        f"{list_file}: line 1 names 2008_000003, which has no image",
        f"{list_file}: line 1 names 2008_000003, which has no label file",
    ]
    assert [pair.image.stem for pair in images.pairs] == ["2008_000001"]


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    list_file = pascal_context_tree(tmp_path) / "VOC2010" / "ImageSets" / "SegmentationContext" / "val.txt"
    list_file.unlink()
    with pytest.raises(FileNotFoundError, match=f"^{list_file}: no such file$"):
        pascal_context(tmp_path, "val")
