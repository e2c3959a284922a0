"""Pictures of any kind as RGB: what a camera, a scanner or a drawing program writes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dnlnet.data.labelled import open_picture
from dnlnet.data.sizes import Size

_BRIGHTEST = {"I;16": 65535, "I;16B": 65535, "I;16L": 65535, "I": 65535, "F": 1.0}


def read_picture(path: Path, *, upright: bool = True) -> NDArray[np.uint8]:
    """A picture file as (H, W, 3) in 0..255, upright as its EXIF orientation says, or else as it is stored.

    Grey, palette and CMYK become RGB; 16 bits become 8; what is transparent is laid on white. Of several pages the
    first is taken. A file that cannot be read raises `BadFileError`.
    """
    with open_picture(path) as image:
        return to_rgb(ImageOps.exif_transpose(image) if upright else image)


def to_rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Any picture of Pillow as (H, W, 3) in 0..255.

    >>> to_rgb(Image.new("I;16", (1, 1), 65535)).tolist()
    [[[255, 255, 255]]]
    """
    if image.mode in _BRIGHTEST:
        values, scale = np.asarray(image), 255 / _BRIGHTEST[image.mode]
        grey = np.empty(values.shape, dtype=np.uint8)
        for row, given in zip(grey, values, strict=True):  # one by one: as numbers they are eight times as large
            row[:] = np.nan_to_num(given * scale).clip(0, 255).round()
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return np.asarray(image.convert("RGB"))


def read_pixels(image: Path | str | Image.Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture as (H, W, 3) in 0..255, from its file, a Pillow image, or as it is.

    >>> read_pixels(Image.new("L", (3, 2))).shape
    (2, 3, 3)
    """
    if isinstance(image, Path | str):
        return read_picture(Path(image))
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"an array must be (height, width, 3) of uint8, got {image.shape} of {image.dtype}")
    return image


def resized_picture(picture: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """The picture (H, W, 3) at another height and width, itself if it has them.

    >>> resized_picture(np.zeros((4, 6, 3), np.uint8), (2, 3)).shape
    (2, 3, 3)
    """
    if picture.shape[:2] == size:
        return picture
    return np.asarray(Image.fromarray(picture).resize((size[1], size[0]), Image.Resampling.BILINEAR))
