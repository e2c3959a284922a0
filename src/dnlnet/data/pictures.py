"""Pictures of any kind as RGB: what a camera, a scanner or a drawing program writes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dnlnet.data.labelled import IMAGE_SUFFIXES, open_picture

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


def find_pictures(inputs: Iterable[Path]) -> dict[Path, Path]:
    """Picture files by their path relative to the input they were found in; folders are searched through.

    >>> find_pictures([Path("/nowhere/a.png")])
    Traceback (most recent call last):
    FileNotFoundError: /nowhere/a.png: no such file or folder
    """
    return find_inputs(inputs, _is_picture, f"pictures in it ({', '.join(IMAGE_SUFFIXES)})")


def find_inputs(inputs: Iterable[Path], wanted: Callable[[Path], bool], kind: str) -> dict[Path, Path]:
    """What is wanted, by its path, without suffix, relative to the input it was found in.

    Args:
        inputs: what is wanted itself, and folders that are searched through for it.
        wanted: says so of a path.
        kind: what an input without any is told to lack.
    """
    found: dict[Path, Path] = {}
    for given in inputs:
        if not given.exists():
            raise FileNotFoundError(f"{given}: no such file or folder")
        folder = given.is_dir() and not wanted(given)
        paths = sorted(path for path in given.rglob("*") if wanted(path)) if folder else [given]
        if not paths:
            raise FileNotFoundError(f"{given}: no {kind}")
        for path in paths:
            name = path.relative_to(given) if folder else Path(path.name)
            key = name.with_suffix("")
            other = found.setdefault(key, path)
            if other != path:
                raise ValueError(f"{other} and {path} would be written to the same name; do them one after the other")
    return found


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() and not path.name.startswith(".")
