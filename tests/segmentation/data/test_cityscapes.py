from pathlib import Path

import pytest

from dnlnet.data.problems import BadFileError
from dnlnet.segmentation.data.cityscapes import CLASSES, LABEL_IDS, cityscapes
from trees import cityscapes_tree, repeated, write_labels

# From the data set's scripts: the id of each evaluated class.
IDS = {
    "road": 7,
    "sidewalk": 8,
    "building": 11,
    "wall": 12,
    "fence": 13,
    "pole": 17,
    "traffic light": 19,
    "traffic sign": 20,
    "vegetation": 21,
    "terrain": 22,
    "sky": 23,
    "person": 24,
    "rider": 25,
    "car": 26,
    "truck": 27,
    "bus": 28,
    "train": 31,
    "motorcycle": 32,
    "bicycle": 33,
}


@pytest.mark.parametrize(
    ("split", "stems"),
    [
        ("train", ["aachen_000000", "aachen_000001", "bochum_000000"]),
        ("val", ["munster_000000"]),
        ("trainval", ["aachen_000000", "aachen_000001", "bochum_000000", "munster_000000"]),
        ("coarse", ["bonn_000000"]),
    ],
)
def test_a_split_pairs_images_with_label_ids_by_path(tmp_path: Path, split: str, stems: list[str]) -> None:
    images = cityscapes(cityscapes_tree(tmp_path), split).require_complete()
    kind = "gtCoarse" if split == "coarse" else "gtFine"
    assert [pair.image.name for pair in images.pairs] == [f"{stem}_000019_leftImg8bit.png" for stem in stems]
    assert [pair.labels.name for pair in images.pairs] == [f"{stem}_000019_{kind}_labelIds.png" for stem in stems]
    assert all(pair.image.parent.name == pair.labels.parent.name for pair in images.pairs)


def test_evaluated_ids_become_classes_and_others_are_ignored(tmp_path: Path) -> None:
    images = cityscapes(cityscapes_tree(tmp_path), "val")
    names = {number: name for name, number in IDS.items()}
    expected = [list(CLASSES.names).index(names[n]) if n in names else 255 for n in (*range(34), 255)]
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated(expected)


def test_label_ids_are_the_inverse_mapping() -> None:
    assert dict(zip(CLASSES.names, LABEL_IDS, strict=True)) == IDS


def test_an_unknown_id_is_an_error(tmp_path: Path) -> None:
    images = cityscapes(cityscapes_tree(tmp_path), "val")
    write_labels(images.pairs[0].labels, (7, 34))
    with pytest.raises(BadFileError, match=r"label 34 at row 0, column 1; .*0\.\.33"):
        images.decoded(0, images.open_labels(0))


def test_an_image_is_never_paired_with_another_citys_labels(tmp_path: Path) -> None:
    root = cityscapes_tree(tmp_path)
    labels = next((root / "gtFine" / "train" / "bochum").glob("*labelIds.png"))
    moved = labels.rename(root / "gtFine" / "train" / "aachen" / labels.name)
    images = cityscapes(root, "train")
    assert len(images) == 2
    assert [str(problem) for problem in images.problems] == [
        f"{root}/leftImg8bit/train/bochum/bochum_000000_000019_leftImg8bit.png: has no label file",
        f"{moved}: has no image",
    ]


def test_colours_are_the_official_ones() -> None:
    colours = dict(zip(CLASSES.names, CLASSES.palette, strict=True))
    assert len(colours) == len(set(colours.values())) == 19
    assert (colours["road"], colours["car"], colours["bicycle"]) == ((128, 64, 128), (0, 0, 142), (119, 11, 32))


def test_a_missing_folder_of_labels_is_named(tmp_path: Path) -> None:
    root = cityscapes_tree(tmp_path)
    (root / "gtFine" / "val").rename(root / "elsewhere")
    with pytest.raises(FileNotFoundError, match="gtFine/val: no such folder"):
        cityscapes(root, "trainval")
