from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dnlnet.data.images import read_image_file, read_pixels
from dnlnet.data.problems import BadFileError
from trees import truncate, write_image

RED = np.full((4, 6, 3), (250, 10, 20), dtype=np.uint8)
COLOURS = np.array([[[0, 51, 102], [153, 204, 255]], [[255, 0, 0], [1, 2, 3]]], dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "tif", "webp", "bmp", "jpg"])
def test_rgb_files_are_read_unchanged(suffix: str, tmp_path: Path) -> None:
    options = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(RED).save(tmp_path / f"a.{suffix}", **options)
    difference = np.abs(read_image_file(tmp_path / f"a.{suffix}").astype(int) - RED)
    assert difference.max() <= (3 if suffix == "jpg" else 0)


def test_grey_and_16_bits_become_rgb(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 128, 255]], dtype=np.uint8)).save(tmp_path / "grey.png")
    assert read_image_file(tmp_path / "grey.png")[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]
    Image.fromarray(np.array([[0, 32896, 65535]], dtype=np.uint16)).save(tmp_path / "deep.png")
    assert read_image_file(tmp_path / "deep.png")[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]
    Image.fromarray(np.array([[0, 0.5, 1.0]], dtype=np.float32)).save(tmp_path / "float.tif")
    assert read_image_file(tmp_path / "float.tif")[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]


def test_transparent_pixels_become_white(tmp_path: Path) -> None:
    pixels = np.array([[[250, 0, 0, 255], [250, 0, 0, 0]]], dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "alpha.png")
    assert read_image_file(tmp_path / "alpha.png")[0].tolist() == [[250, 0, 0], [255, 255, 255]]
    Image.fromarray(pixels[..., [0, 3]]).save(tmp_path / "grey.png")
    assert read_image_file(tmp_path / "grey.png")[0].tolist() == [[250] * 3, [255] * 3]


def test_palettes_and_cmyk_become_rgb(tmp_path: Path) -> None:
    Image.fromarray(RED).quantize(4).save(tmp_path / "palette.png")
    assert np.array_equal(read_image_file(tmp_path / "palette.png"), RED)
    Image.fromarray(RED).convert("CMYK").save(tmp_path / "cmyk.tif")
    assert np.abs(read_image_file(tmp_path / "cmyk.tif").astype(int) - RED).max() <= 2


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    Image.fromarray(RED).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image_file(tmp_path / "turned.jpg").shape == (6, 4, 3)


def test_a_broken_file_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(BadFileError, match=r"text\.png: is not an image"):
        read_image_file(tmp_path / "text.png")
    write_image(tmp_path / "cut.png", size=(40, 40))
    truncate(tmp_path / "cut.png")
    with pytest.raises(BadFileError, match=r"cut\.png: cannot be read"):
        read_image_file(tmp_path / "cut.png")
    with pytest.raises(BadFileError, match=r"none\.png: no such file"):
        read_image_file(tmp_path / "none.png")


@pytest.mark.parametrize(
    "given",
    [
        COLOURS / 255,
        (COLOURS / 255).astype(np.float32),
        np.dstack([COLOURS, np.full((2, 2), 255, np.uint8)]),
        torch.from_numpy(COLOURS).permute(2, 0, 1),
        torch.from_numpy(COLOURS).permute(2, 0, 1) / 255,
    ],
    ids=["double", "float", "opaque", "bytes", "tensor"],
)
def test_arrays_and_tensors_are_images(given: object) -> None:
    assert np.array_equal(read_pixels(given), COLOURS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            np.zeros((2, 2, 5), np.uint8),
            r"an array must be \(height, width\) or .*, got \(2, 2, 5\)",
        ),
        (COLOURS.astype(np.float32), "must be in 0..1; give bytes for 0..255"),
        (COLOURS.astype(np.int64), "must be of uint8, or in 0..1, got int64"),
        (torch.zeros(2, 2, 3), r"a tensor must be \(3, height, width\)"),
        (7, "an image is a file, a URL, a Pillow image, an array or a tensor, not int"),
    ],
)
def test_invalid_images_are_refused_with_one_sentence(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pixels(given)  # type: ignore[arg-type]
