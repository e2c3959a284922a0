"""All image readers return the same pixels for every storage format."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.data.decoders import index_labels
from dnlnet.data.images import read_image_file
from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.data.problems import BadFileError
from dnlnet.data.samples import WholeImages
from dnlnet.segmentation.data.check import check_pixels
from dnlnet.segmentation.data.features import Extractor, WholeFeatures, maps_and_labels
from dnlnet.segmentation.data.unpacked import unpack_into
from dnlnet.segmentation.schema import View
from dnlnet.segmentation.stages import Grid
from dnlnet.video.data.opening import open_video

Pixels = NDArray[np.uint8]
SIZE = (6, 9)
RNG = np.random.default_rng(0)
COLOUR: Pixels = RNG.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
GREY: Pixels = np.repeat(RNG.integers(8, 256, (*SIZE, 1), dtype=np.uint8), 3, axis=2)
LABELS: Pixels = RNG.integers(0, 3, SIZE, dtype=np.uint8)
CLASSES = Classes(("a", "b", "c"), spread_colours(3))
DECODE = index_labels({0: 0, 1: 1, 2: 2}, expected="0..2")


class Identity(Extractor):
    """Return the normalised pixels as features."""

    def __init__(self) -> None:
        self.network, self.stages = (lambda images: [images]), (0,)  # type: ignore[assignment]


def features_pixels(path: Path) -> Pixels:
    """Return the input pixels of the frozen backbone with normalisation undone."""
    found = Identity()(path, View(1.0))[0].float()
    black, white = (normalised(torch.full((1, 3, 1, 1), value, dtype=torch.uint8))[0] for value in (0, 255))
    return ((found - black) / (white - black) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


def one_pair(path: Path) -> LabelledImages:
    return LabelledImages("mine", CLASSES, [Pair(path, path.parent / "labels" / "a.png")], DECODE)


READERS: dict[str, Callable[[Path], Pixels]] = {
    "predict": read_image_file,
    "train": lambda path: np.asarray(one_pair(path).open_image(0)),
    "features": features_pixels,
    "frames": lambda path: open_video(path.parent).frames([0.0])[0],
}


def deep(factor: float, kind: type) -> Image.Image:
    return Image.fromarray((GREY[..., 0].astype(np.float64) * factor).astype(kind))


def transparent() -> Image.Image:
    covered = np.full((*SIZE, 1), 255, dtype=np.uint8)
    covered[2:4] = 0
    return Image.fromarray(np.concatenate([COLOUR, covered], axis=2))


ON_WHITE = COLOUR.copy()
ON_WHITE[2:4] = 255

STORED: dict[str, tuple[str, Image.Image, Pixels]] = {
    "8-bit colour": ("png", Image.fromarray(COLOUR), COLOUR),
    "16-bit grey": ("png", deep(257, np.uint16), GREY),
    "16-bit TIFF": ("tif", deep(257, np.uint16), GREY),
    "float 0..1": ("tif", deep(1 / 255, np.float32), GREY),
    "float 0..255": ("tif", deep(1, np.float32), GREY),
    "float 0..65535": ("tif", deep(257, np.float32), GREY),
    "int32 0..255": ("tif", deep(1, np.int32), GREY),
    "int32 0..65535": ("tif", deep(257, np.int32), GREY),
    "alpha": ("png", transparent(), ON_WHITE),
    "palette": ("png", Image.fromarray(GREY).convert("P", palette=Image.Palette.ADAPTIVE), GREY),
    "CMYK": ("tif", Image.fromarray(COLOUR).convert("CMYK"), COLOUR),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("stored", STORED)
def test_every_reader_sees_the_same_image(stored: str, reader: str, tmp_path: Path) -> None:
    suffix, image, expected = STORED[stored]
    path = tmp_path / f"a.{suffix}"
    image.save(path)
    assert np.abs(READERS[reader](path).astype(int) - expected).max() <= 1


# Stored pixels that a viewer shows as COLOUR: the EXIF standard's table of row 0 and column 0.
# 1 top-left, 2 top-right, 3 bottom-right, 4 bottom-left, 5 left-top, 6 right-top, 7 right-bottom, 8 left-bottom.
TURNED: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda shown: shown,
    2: lambda shown: shown[:, ::-1],
    3: lambda shown: shown[::-1, ::-1],
    4: lambda shown: shown[::-1],
    5: lambda shown: shown.swapaxes(0, 1),
    6: lambda shown: shown[:, ::-1].swapaxes(0, 1),
    7: lambda shown: shown[::-1, ::-1].swapaxes(0, 1),
    8: lambda shown: shown[::-1].swapaxes(0, 1),
}


def save_turned(pixels: Pixels, orientation: int, path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.ascontiguousarray(TURNED[orientation](pixels))).save(path, exif=exif)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("orientation", TURNED)
def test_every_reader_turns_an_image_upright(orientation: int, reader: str, tmp_path: Path) -> None:
    save_turned(COLOUR, orientation, tmp_path / "a.png")
    assert np.array_equal(READERS[reader](tmp_path / "a.png"), COLOUR)


UPRIGHT, OWN, AS_STORED = "upright", "with their own orientation", "as stored"


@pytest.mark.parametrize(
    ("orientation", "masks"),
    # A mask drawn on stored pixels is distinguishable from an upright one only if height and width are swapped.
    [(n, kind) for n in TURNED for kind in (UPRIGHT, OWN, AS_STORED) if n > 4 or kind != AS_STORED],
)
def test_masks_align_with_the_upright_image(orientation: int, masks: str, tmp_path: Path) -> None:
    images = one_pair(tmp_path / "a.jpg")
    save_turned(COLOUR, orientation, images.pairs[0].image)
    path = images.pairs[0].labels
    save_turned(LABELS, orientation if masks == OWN else 1, path)
    if masks == AS_STORED:
        Image.fromarray(np.ascontiguousarray(TURNED[orientation](LABELS))).save(path)
    assert np.array_equal(WholeImages(images)[0].labels, LABELS)
    assert np.array_equal(unpack_into(images, tmp_path / "unpacked").open(0)[1].pixels, LABELS)
    assert np.array_equal(maps_and_labels(images, Identity(), 0, View(1.0))[1], LABELS)
    assert WholeFeatures(images, Identity(), Grid((1,)))[0].features.maps[0].shape[-2:] == SIZE
    report = check_pixels(images)
    assert not report.problems
    assert report.sizes == {SIZE[::-1]: 1}
    turned = [line for line in report.contents().lines if "EXIF orientation" in line]
    assert len(turned) == (orientation > 1)
    assert any("1 mask" in line for line in turned) == (masks == AS_STORED)


def test_a_mask_of_another_shape_is_still_refused(tmp_path: Path) -> None:
    images = one_pair(tmp_path / "a.jpg")
    save_turned(COLOUR, 1, images.pairs[0].image)
    save_turned(LABELS.T, 1, images.pairs[0].labels)
    with pytest.raises(BadFileError, match=r"6 x 9 labels for an image of 9 x 6 \(width x height\)"):
        images.open(0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 1.01], "0 to 1.01; expected 0..1 or 0..255 or 0..65535"),
        ([-0.5, 0.5], "-0.5 to 0.5; expected"),
        ([0.0, 1e9], "0 to 1e.09; expected"),
        ([0.0, 300.0], "0 to 300; expected"),
        ([0.0, float("nan")], "nan to nan; expected"),
    ],
)
def test_numbers_with_an_ambiguous_range_are_refused(values: list[float], said: str, tmp_path: Path) -> None:
    Image.fromarray(np.array([values], dtype=np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(BadFileError, match=f"a.tif: cannot be read: its pixels hold {said}"):
        read_image_file(tmp_path / "a.tif")
