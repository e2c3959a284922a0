import pickle
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dnlnet.data.augmentation import Augmentation
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.data.decoders import colour_labels, index_labels
from dnlnet.data.images import files_by_stem
from dnlnet.data.labelled import LabelledImages, Pair, pair_files
from dnlnet.data.problems import BadFileError, Problem
from trees import save, truncate, write_image, write_labels

CLASSES = Classes(("a", "b"), spread_colours(2))
DECODE = index_labels({0: 0, 1: 1, 255: 255}, expected="0, 1 or 255")


@pytest.fixture
def images(tmp_path: Path) -> LabelledImages:
    """Return one pair of a JPEG image and a PNG label file."""
    pair = Pair(tmp_path / "a.jpg", tmp_path / "a.png")
    write_image(pair.image)
    write_labels(pair.labels, (0, 1, 255))
    return LabelledImages("mine", CLASSES, [pair], DECODE)


def test_a_pair_opens_as_an_rgb_image_and_raw_labels_of_its_size(images: LabelledImages) -> None:
    image, raw = images.open(0)
    assert (image.mode, image.size, raw.size) == ("RGB", (32, 24), (32, 24))
    assert images.decoded(0, raw)[0, :4].tolist() == [0, 1, 255, 0]


def test_a_grey_image_opens_in_rgb(images: LabelledImages) -> None:
    write_labels(images.pairs[0].image, range(256))
    assert images.open_image(0).mode == "RGB"


def test_labels_with_a_palette_are_read_as_numbers(images: LabelledImages) -> None:
    pixels = Image.open(images.pairs[0].labels)
    pixels.putpalette([200, 100, 50] * 256)
    pixels.save(images.pairs[0].labels)
    raw = images.open_labels(0)
    assert raw.mode == "P"
    assert images.decoded(0, raw)[0, :3].tolist() == [0, 1, 255]


def damage_nothing(path: Path) -> None:
    path.write_bytes(b"")


def damage_text(path: Path) -> None:
    path.write_text("<html>404</html>")


@pytest.mark.parametrize("name", ["image", "labels"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (truncate, "cannot be read: .*[Tt]runcated"),
        (Path.unlink, "no such file"),
        (damage_nothing, "is not an image"),
        (damage_text, "is not an image"),
    ],
)
def test_a_bad_file_gives_one_sentence_with_its_path(
    images: LabelledImages, name: str, damage: Callable[[Path], None], expected: str
) -> None:
    path: Path = getattr(images.pairs[0], name)
    damage(path)
    with pytest.raises(BadFileError, match=f"^{path}: {expected}") as caught:
        images.open(0)
    assert caught.value.problem.path == path
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_truncated_image_cannot_be_read(tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    write_image(path, size=(96, 128))
    truncate(path, share)
    with pytest.raises(BadFileError, match=f"^{path}: cannot be read: "):
        LabelledImages("mine", CLASSES, [Pair(path, path)], DECODE).open(0)


def test_labels_of_another_size_name_both_sizes(images: LabelledImages) -> None:
    write_labels(images.pairs[0].labels, (0, 1), size=(24, 30))
    with pytest.raises(BadFileError, match=r"a\.png: 30 x 24 labels for an image of 32 x 24 .*; a\.jpg must have"):
        images.open(0)


def test_labels_in_colour_are_refused_where_numbers_are_expected(images: LabelledImages) -> None:
    write_image(images.pairs[0].labels)
    with pytest.raises(BadFileError, match=r"a\.png: a label file of mode RGB; expected one 8-bit number"):
        images.open_labels(0)


def test_an_out_of_range_label_names_file_position_and_expected_range(images: LabelledImages) -> None:
    write_labels(images.pairs[0].labels, (0, 1, 7))
    with pytest.raises(BadFileError, match=r"a\.png: label 7 at row 0, column 2; expected 0, 1 or 255$"):
        images.decoded(0, images.open_labels(0))


def test_the_error_of_a_bad_file_can_be_sent_by_a_worker() -> None:
    error = pickle.loads(pickle.dumps(BadFileError(Problem(Path("a.png"), "is not an image"))))
    assert str(error) == "a.png: is not an image"
    assert error.problem == Problem(Path("a.png"), "is not an image")


def test_each_colour_becomes_its_class() -> None:
    decode = colour_labels({(255, 0, 0): 0, (0, 0, 255): 1, (0, 0, 0): 255, (0, 255, 0): 2})
    raw = np.array([[(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255)]], dtype=np.uint8)
    assert decode(raw).tolist() == [[255, 0, 2, 1]]


@pytest.mark.parametrize("colour", [(1, 2, 3), (255, 255, 255), (0, 0, 1)])
def test_a_colour_without_a_class_is_an_error(colour: tuple[int, int, int]) -> None:
    raw = np.array([[(0, 0, 0)], [colour]], dtype=np.uint8)
    with pytest.raises(ValueError, match="at row 1, column 0 is not a class") as caught:
        colour_labels({(0, 0, 0): 0, (9, 9, 9): 1})(raw)
    assert str(colour) in str(caught.value)


def test_colour_labels_are_opened_as_colours(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "a.jpg", tmp_path / "a.png")
    write_image(pair.image, size=(1, 2))
    save(pair.labels, np.array([[(9, 9, 9), (0, 0, 0)]], dtype=np.uint8))
    images = LabelledImages("mine", CLASSES, [pair], colour_labels({(0, 0, 0): 0, (9, 9, 9): 1}), colour_labels=True)
    _, raw = images.open(0)
    assert images.decoded(0, raw).tolist() == [[1, 0]]


def test_files_pair_by_key_in_order_and_unpaired_ones_are_problems() -> None:
    images = {name: Path(f"{name}.jpg") for name in "cab"}
    labels = {name: Path(f"{name}.png") for name in "dcb"}
    pairs, problems = pair_files(images, labels)
    assert [pair.image.stem for pair in pairs] == ["b", "c"]
    assert [str(problem) for problem in problems] == ["a.jpg: has no label file", "d.png: has no image"]


def test_files_by_stem_finds_only_images(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "notes.txt"):
        (tmp_path / name).touch()
    assert files_by_stem(tmp_path) == {"a": tmp_path / "a.JPG", "b": tmp_path / "b.png"}
    assert list(files_by_stem(tmp_path, (".png",))) == ["b"]
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        files_by_stem(tmp_path / "nowhere")


def test_complete_images_are_returned_and_incomplete_ones_refused(images: LabelledImages) -> None:
    assert images.require_complete() is images
    lost = [Problem(Path("b.jpg"), "has no label file"), Problem(Path("c.jpg"), "has no label file")]
    with pytest.raises(ValueError, match=r"^b\.jpg: has no label file$"):
        LabelledImages("mine", CLASSES, images.pairs, DECODE, lost[:1]).require_complete()
    with pytest.raises(ValueError, match=r"^b\.jpg: has no label file \(and 1 more problems"):
        LabelledImages("mine", CLASSES, images.pairs, DECODE, lost).require_complete()
    with pytest.raises(ValueError, match="no images found for mine"):
        LabelledImages("mine", CLASSES, [], DECODE).require_complete()


def lie(path: Path, width: int, height: int) -> None:
    """Return a PNG of 2 x 2 pixels whose header claims another size."""
    Image.new("L", (2, 2)).save(path, "PNG")
    content = bytearray(path.read_bytes())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((2**31 - 1, 2**31 - 1), "has more than 178956970 pixels; cut it into parts"),
        ((20_000, 20_000), "has more than 178956970 pixels; cut it into parts"),
        ((3000, 3000), "cannot be read: "),
        ((0, 2), "cannot be read: |is not an image"),
    ],
)
def test_a_false_header_gives_one_sentence(images: LabelledImages, size: tuple[int, int], said: str) -> None:
    for path, read in ((images.pairs[0].image, images.open_image), (images.pairs[0].labels, images.open_labels)):
        lie(path, *size)
        with pytest.raises(BadFileError, match=rf"{path.name}: ({said})"):
            read(0)


def test_large_images_are_read_without_a_warning(images: LabelledImages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Image, "MAX_IMAGE_PIXELS", 24 * 32 * 2 // 3
    )  # Pillow warns above this limit, and refuses above twice the limit
    image, raw = images.open(0)
    assert image.size == raw.size == (32, 24)
    crop = Augmentation(crop=(8, 8), scales=(0.3, 0.3)).draw(np.random.default_rng(0), (24, 32))
    assert crop.image(image).shape == (8, 8, 3)


def test_no_other_program_is_started_for_an_image(images: LabelledImages) -> None:
    images.pairs[0].image.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(BadFileError, match=r"a\.jpg: is not an image"):
        images.open_image(0)


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tiff"])
def test_the_first_of_several_pages_is_read(images: LabelledImages, suffix: str) -> None:
    pages = [Image.new("RGB", (32, 24), colour) for colour in ("red", "blue")]
    pages[0].save(images.pairs[0].image, suffix, save_all=True, append_images=pages[1:])
    assert np.asarray(images.open_image(0))[0, 0].tolist() == pytest.approx([255, 0, 0], abs=2)


@pytest.mark.parametrize("mode", ["1", "I;16", "RGB", "RGBA", "LA", "CMYK", "F", "I"])
def test_labels_of_another_kind_get_one_sentence(images: LabelledImages, mode: str) -> None:
    suffix = "PNG" if mode in ("1", "I;16", "RGB", "RGBA", "LA") else "TIFF"
    Image.new(mode, (32, 24)).save(images.pairs[0].labels, suffix)
    with pytest.raises(BadFileError, match=rf"a\.png: a label file of mode {mode}; expected one 8-bit number"):
        images.open_labels(0)


def test_colours_of_a_tall_image_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.data.decoders._CHUNK", 10)
    decode = colour_labels({(9, 0, 0): 0, (0, 9, 0): 1})
    raw = np.zeros((23, 3, 3), dtype=np.uint8)
    raw[..., 0] = 9
    raw[20, 1] = (0, 9, 0)
    assert np.argwhere(decode(raw)).tolist() == [[20, 1]]
    raw[22, 2] = 7
    with pytest.raises(ValueError, match=r"colour \(7, 7, 7\) at row 22, column 2 is not a class"):
        decode(raw)


def test_a_name_with_invalid_text_can_be_shown() -> None:
    assert str(Problem(Path("caf\udce9.png"), "no such file")) == r"caf\udce9.png: no such file"
