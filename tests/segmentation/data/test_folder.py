from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dnlnet.data.classes import distinct_colours
from dnlnet.data.problems import BadFileError
from dnlnet.segmentation.data.check import check_pixels, require_labels
from dnlnet.segmentation.data.folder import folder, own_splits, read_classes
from trees import SIZE, colour_folder_tree, folder_tree, repeated, write_image, write_labels

# Twelve lists, each nine times the previous one: the last expands to 9**12 letters.
LAUGHS = ["&l0 [x, x, x]", *(f"&l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 13))]


def test_images_and_masks_pair_by_path_without_suffix(tmp_path: Path) -> None:
    images = folder(folder_tree(tmp_path), "train").require_complete()
    assert [pair.image for pair in images.pairs] == [tmp_path / "images/train" / n for n in ("a.jpg", "deep/b.jpg")]
    assert [pair.labels for pair in images.pairs] == [tmp_path / "masks/train" / n for n in ("a.png", "deep/b.png")]


def test_classes_may_be_numbered_from_any_first_number(tmp_path: Path) -> None:
    root = folder_tree(tmp_path, "names: [sky, road]\nfirst: 1\nignore: 0\ncolours: [[0, 0, 255], [90, 90, 90]]\n")
    mask = Image.fromarray(np.resize(np.array([0, 1, 2], dtype=np.uint8), SIZE), mode="P")
    mask.putpalette([0, 0, 0, 0, 0, 255, 90, 90, 90])
    mask.save(root / "masks" / "val" / "c.png")
    images = folder(root, "val")
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([255, 0, 1])
    mask.putpalette([0, 0, 0, 0, 0, 255, 255, 0, 0])
    mask.save(root / "masks" / "val" / "c.png")
    with pytest.raises(BadFileError, match=r"palette shows 2 in \(255, 0, 0\), but .*'road' is \(90, 90, 90\)"):
        images.open_labels(0)


@pytest.mark.parametrize("suffix", [".bmp", ".tif", ".TIFF"])
def test_masks_may_have_any_lossless_format(tmp_path: Path, suffix: str) -> None:
    root = folder_tree(tmp_path)
    (root / "masks" / "val" / "c.png").unlink()
    write_labels(root / "masks" / "val" / f"c{suffix}", (0, 255, 2))
    images = folder(root, "val").require_complete()
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([0, 255, 2])


def test_numbers_are_classes_and_255_is_ignored(tmp_path: Path) -> None:
    images = folder(folder_tree(tmp_path), "val")
    assert images.classes.names == ("sky", "road", "car")
    assert images.classes.palette == distinct_colours(3)
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([0, 1, 2, 255])


def test_255_is_an_error_if_another_number_is_ignored(tmp_path: Path) -> None:
    images = folder(folder_tree(tmp_path, "{names: [sky, road, car], ignore: 9}"), "val")
    with pytest.raises(BadFileError, match=r"label 255 at row 0, column 3; expected 0\.\.2 or 9"):
        images.decoded(0, images.open_labels(0))
    write_labels(images.pairs[0].labels, (9, 2))
    assert images.decoded(0, images.open_labels(0)).tolist() == repeated([255, 2])


def test_colour_masks_are_read_by_colour(tmp_path: Path) -> None:
    images = folder(colour_folder_tree(tmp_path), "train").require_complete()
    assert images.classes.palette == ((255, 0, 0), (0, 255, 0))
    labels = images.decoded(0, images.open_labels(0))
    np.testing.assert_array_equal(labels, np.repeat([0, 1, 255], SIZE[0] // 3)[:, None].repeat(SIZE[1], axis=1))


def test_an_unknown_colour_is_an_error(tmp_path: Path) -> None:
    images = folder(colour_folder_tree(tmp_path), "train")
    write_image(images.pairs[0].labels)
    with pytest.raises(BadFileError, match=r"a\.png: colour \(.*\) at row 0, column 0"):
        images.decoded(0, images.open_labels(0))


COLOURS = "names: [sky, road, car]\ncolours: [[0, 0, 255], [90, 90, 90], [255, 0, 0]]\n"
RED, GREY, BLUE = (255, 0, 0), (90, 90, 90), (0, 0, 255)


@pytest.mark.parametrize(
    ("classes", "palette", "said"),
    [
        (COLOURS, (RED, GREY, BLUE), "its palette shows 0 in (255, 0, 0), but in classes.yaml 'sky' is (0, 0, 255)"),
        (COLOURS, (BLUE, (1, 2, 3), RED), "its palette shows 1 in (1, 2, 3), but in classes.yaml 'road' is (90, 90"),
        (COLOURS, (BLUE, GREY, RED), None),
        (COLOURS, (BLUE, GREY, GREY), None),  # the mask has no car pixel
        (COLOURS, tuple((n, n, n) for n in range(256)), None),  # a grey palette has no meaning
        (COLOURS, ((0, 0, 0),) * 256, None),
        ("names: [sky, road, car]", (RED, GREY, BLUE), None),  # default colours have no meaning
    ],
)
def test_a_palette_does_not_contradict_the_colours(
    classes: str, palette: tuple[tuple[int, int, int], ...], said: str | None, tmp_path: Path
) -> None:
    root = folder_tree(tmp_path, classes)
    mask = Image.fromarray(np.resize(np.array([0, 1, 255], dtype=np.uint8), SIZE), mode="P")
    mask.putpalette([*(value for colour in palette for value in colour), *(768 - 3 * len(palette)) * [0]])
    mask.save(root / "masks" / "val" / "c.png")
    images = folder(root, "val")
    assert [problem.text.startswith(said or " ") for problem in check_pixels(images).problems] == [True] * bool(said)
    if said is not None:
        with pytest.raises(BadFileError, match=r"c\.png: .*palette"):
            require_labels(images)


def test_several_colours_can_be_ignored(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text("{names: [a], colours: [[9, 9, 9]], masks: colour, ignore: [[0, 0, 0], [1, 1, 1], [0, 0, 0]]}")
    _, decode, in_colour, *_ = read_classes(path)
    assert in_colour
    assert decode(np.array([[[0] * 3, [9] * 3, [1] * 3]], dtype=np.uint8)).tolist() == [[255, 0, 255]]


def test_colours_of_index_masks_are_for_drawing_and_may_repeat(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text("names: [a, b]\ncolours: [[1, 2, 3], [1, 2, 3]]\n")
    classes, _, in_colour, *_ = read_classes(path)
    assert classes.palette == ((1, 2, 3), (1, 2, 3))
    assert not in_colour


WRONG = {
    "names: [a": "is not YAML: .* in line 1",
    "names: [2020-13-01]": "is not YAML: month must be in 1..12",
    "names: [\x01]": "is not YAML: unacceptable character .*",
    "": "holds nothing",
    "[a, b]": r"holds \['a', 'b'\]",
    "{names: [a], colors: []}": "'colors'.*'colours'",
    "masks: index": "has no names",
    "names:": "names=null: expected a list",
    "names: []": r"names=\[\]: expected at least 1 values, got 0",
    "names: sky": "names=sky: expected a list",
    "names: [a, no]": "names.1=false: expected text",
    "names: [a, 7]": "names.1=7: expected text",
    "names: [a, ' ']": "names.1=' ': expected text",
    "names: [a, b, a]": r"names=\['a', 'b', 'a'\]: the name 'a' is given 2 times",
    f"names: {[str(n) for n in range(256)]}": r"names=\[.*: expected at most 254 values, got 256",
    "{names: [a, b], colours: red}": "colours=red: expected a list",
    "{names: [a, b], colours: [[1, 2, 3]]}": "2 class names but 1 colours",
    "{names: [a], colours: [[1, 2, 256]]}": r"colours.0=\[1, 2, 256\]: expected \[red, .*\], each in 0..255",
    "{names: [a], colours: [[1, 2]]}": r"colours.0=\[1, 2\]: expected \[red",
    "{names: [a], colours: [[1, 2, true]]}": r"colours.0=\[1, 2, True\]: expected \[red",
    "{names: !!set {a, b}}": r"names=\{'.', '.'\}: expected a list",
    "{names: [a], colours: [!!set {1, 2, 3}]}": r"colours.0=\{1, 2, 3\}: expected \[red",
    "{names: [a], colours: }": "colours=null: expected a list",
    "{names: [a], colours: []}": "1 class names but 0 colours",
    "{names: [a], 7: b}": "unknown key 7.*names, colours, masks, ignore",
    "{names: [a], masks: color}": "'color'.*'colour'",
    "{names: [a], masks: [1]}": r"masks \[1\].*index, colour",
    "{names: [a, b], ignore: 1}": "ignore is 1, which is the class 'b'",
    "{names: [a, b], first: 3, ignore: 4}": r"ignore is 4, which is the class 'b'; choose one outside 3\.\.4",
    "{names: [a, b], first: 255}": "the last class is 256",
    "{names: [a], first: -1}": "first=-1: expected the number of the first class",
    "{names: [a], masks: colour, colours: [[0, 0, 0]], first: 1}": "unknown key 'first'",
    "{names: [a], ignore: 256}": "ignore=256: expected a number in 0..255 for index masks",
    "{names: [a], ignore: true}": "ignore=true: expected a number",
    "{names: [a], ignore: [0, 0, 0]}": r"ignore=\[0, 0, 0\]: expected a number",
    "{names: [a], masks: colour}": "masks: colour, but no colours",
    "{names: [a], masks: colour, colours: [[0, 0, 0]], ignore: 255}": r"ignore=255: expected \[red, .* or a list",
    "{names: [a], masks: colour, colours: [[0, 0, 0]], ignore: [0, 0]}": r"ignore=\[0, 0\]: expected \[red",
    "{names: [a], masks: colour, colours: [[0, 0, 0]], ignore: [[9, 9, 9], 1]}": r"ignore=\[.* 1\]: expected \[red",
    "{names: [a], masks: colour, colours: [[0, 0, 0]], ignore: [[0, 0, 0]]}": (
        r"ignore has \[0, 0, 0\], which is the colour of 'a'"
    ),
    "{names: [a, b], masks: colour, colours: [[0, 0, 1], [0, 0, 1]]}": (
        r"'a' and 'b' have the same colour \[0, 0, 1\]"
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_a_wrong_classes_file_is_refused_with_its_path(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}") as caught:
        read_classes(path)
    assert "\n" not in str(caught.value)


def test_a_missing_classes_file_shows_an_example(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"classes\.yaml: no such file.*names: \[sky, road\]"):
        read_classes(tmp_path / "classes.yaml")


def test_a_binary_classes_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(ValueError, match=r"classes\.yaml: .*UTF-8"):
        read_classes(tmp_path / "classes.yaml")


def test_files_without_a_partner_and_lossy_masks_are_problems(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    (root / "masks" / "train" / "a.png").unlink()
    write_labels(root / "masks" / "train" / "deep" / "alone.png", (0,))
    write_labels(root / "masks" / "train" / "a.jpg", (0,))
    images = folder(root, "train")
    assert [pair.image.stem for pair in images.pairs] == ["b"]
    assert [str(problem) for problem in images.problems] == [
        f"{root}/masks/train/a.jpg: JPEG changes the labels of a mask; save it as PNG",
        f"{root}/images/train/a.jpg: has no label file",
        f"{root}/masks/train/deep/alone.png: has no image",
    ]


def test_two_images_with_one_name_are_a_problem(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    write_image(root / "images" / "val" / "c.png")
    images = folder(root, "val")
    assert [pair.image.name for pair in images.pairs] == ["c.jpg"]
    assert [str(problem) for problem in images.problems] == [
        f"{root}/images/val/c.png: has the same name as c.jpg; keep one of them"
    ]


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    (root / "images" / "val" / "._c.jpg").write_bytes(b"left by another system")
    (root / "images" / ".cache").mkdir()
    assert not folder(root, "val").problems
    assert own_splits(root) == ["train", "val"]


def test_an_unknown_split_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'trian'.*'train'"):
        folder(folder_tree(tmp_path), "trian")


def test_missing_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text("names: [a]")
    with pytest.raises(FileNotFoundError, match="images: no such folder"):
        folder(tmp_path, "train")
    (tmp_path / "images").mkdir()
    with pytest.raises(FileNotFoundError, match=r"images: .*images/train"):
        folder(tmp_path, "train")
    (tmp_path / "images" / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="masks/train: no such folder"):
        folder(tmp_path, "train")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"[" * 50_000, "nested too deeply"),
        (b"names: " + b"[" * 900 + b"]" * 900, r"nested too deeply|names.0=\[\[\[\[.*: expected text"),
        (b"names: !!bool x", "YAML"),
        (b'names: !!int ""', "YAML"),
        (b"names: !!timestamp x", "YAML"),
        (f"names: [a]\nmasks: [{', '.join(LAUGHS)}]".encode(), r"unknown kind of masks"),
        (f"names: [{', '.join(reversed(LAUGHS))}]".encode(), "is not YAML: found undefined alias"),
        (f"names: [a]\ncolours: [[{', '.join(LAUGHS)}]]".encode(), r"colours.0=\[.*: expected \[red, green, blue\]"),
        (b"names: 0x" + b"f" * 5000, "names=a very large int: expected a list"),
        (b"names: [&a [*a]]", r"names.0=\[\[.*: expected text"),
        (b'names: ["\\e[31mred"]', r"names.0=\\x1b\[31mred: expected text"),
        (b"names: [a\0]", "YAML"),
        ("names: [a]".encode("utf-16"), "UTF-8"),
        (b"", "nothing"),
        (b"names: [a]\nmasks: index\nnames: [b]", "'names'.* line 3"),
        (b"masks: {a: 1, a: 2}\nnames: [a]", "'a'.* line 1"),
        (b"x: &x {names: [a]}\n<<: [*x, *x]", "merge key in line 2"),
    ],
)
def test_any_classes_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, fact: str) -> None:
    (tmp_path / "classes.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=rf"classes\.yaml: .*({fact})"):
        read_classes(tmp_path / "classes.yaml")
