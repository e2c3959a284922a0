"""Images from files, URLs and memory as upright RGB, for training, evaluation and prediction."""

import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from dnlnet.data.downloads import downloaded, is_url
from dnlnet.data.files import file_fault
from dnlnet.data.problems import BadFileError, Problem
from dnlnet.errors import shown

if TYPE_CHECKING:
    from torch import Tensor

ImageLike = Union[Path, str, Image.Image, NDArray[Any], "Tensor"]
HeightWidth = tuple[int, int]
MOST_SIDE = 65_535  # pixels per side, the limit of JPEG
MOST_PIXELS = 178_956_970  # Pillow treats larger images as an attack
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")

# Possible largest values of a channel, by mode. The smallest one that fits is assumed.
_RANGES = {"F": (1.0, 255.0, 65535.0), "I": (255, 65535), "I;16": (65535,), "I;16B": (65535,), "I;16L": (65535,)}
_DOUBT = 4  # a range is assumed only if the maximum is at least this multiple of the previous range
# Transpositions that turn an image upright, by its EXIF orientation (EXIF 2.32, tag 0x0112).
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = range(5, 9)  # orientations that exchange height and width


def size_fault(size: HeightWidth) -> str | None:
    """Return why an image cannot have this height and width, or None if it can.

    >>> size_fault((480, 640)), size_fault((0, 640))
    (None, 'is 0 x 640 (height x width); expected 1..65535 pixels each, and 178956970 in all at most')
    """
    height, width = size
    if 1 <= height <= MOST_SIDE and 1 <= width <= MOST_SIDE and height * width <= MOST_PIXELS:
        return None
    limits = f"1..{MOST_SIDE} pixels each, and {MOST_PIXELS} in all at most"
    return f"is {shown(height)} x {shown(width)} (height x width); expected {limits}"


def files_by_stem(folder: Path, suffixes: Iterable[str] = IMAGE_SUFFIXES) -> dict[str, Path]:
    """Return the image files of a folder by stem."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    wanted = tuple(suffixes)
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in wanted}


# Errors of Pillow's readers for damaged files.
_DAMAGES = (
    *(OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(AssertionError, RuntimeError, struct.error, zlib.error),
)
_OTHER_PROGRAMS = frozenset(("EPS", "WMF"))  # formats that Pillow reads with other programs


@contextmanager
def open_image(path: Path, *, decode: bool = True) -> Iterator[Image.Image]:
    """Open and decode an image file; any failure becomes a `BadFileError`.

    With `decode=False`, only the header is read, which contains the size. Pillow's warnings, such as those about odd
    metadata, are ignored.
    """
    if fault := file_fault(path):
        raise BadFileError(Problem(path, fault))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_formats()) as image:
                if decode:
                    image.load()
                if 0 in image.size:
                    raise ValueError("it has no pixels")
                yield image
    except UnidentifiedImageError:
        raise BadFileError(Problem(path, "is not an image")) from None
    except Image.DecompressionBombError:
        raise BadFileError(Problem(path, f"has more than {MOST_PIXELS} pixels; cut it into parts")) from None
    except MemoryError:
        raise BadFileError(Problem(path, "does not fit into memory; cut it into parts")) from None
    except _DAMAGES as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadFileError(Problem(path, f"cannot be read: {first}")) from None


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _OTHER_PROGRAMS)


def open_rgb(path: Path) -> Image.Image:
    """Read the first page of an image file, upright and in RGB (see `to_rgb`)."""
    with open_image(path) as image:
        return to_rgb(upright(image))


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB.

    Transparent pixels are blended with white. Floating-point values up to 1, 255 or 65,535 and 32-bit integers up to
    255 or 65,535 are scaled to 0..255. Raises ValueError for other ranges, and for a maximum slightly above 1 or 255,
    because the range is then ambiguous.

    >>> to_rgb(Image.new("I;16", (1, 1), 65535)).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode in _RANGES:
        return _grey(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image if image.mode == "RGB" else image.convert("RGB")


def _grey(image: Image.Image) -> Image.Image:
    values, ranges = np.asarray(image), _RANGES[image.mode]
    low, high = values.min(), values.max()  # NaN if any value is NaN
    smaller = (0, *(_DOUBT * largest for largest in ranges))
    fitting = [largest for least, largest in zip(smaller, ranges, strict=False) if least <= high <= largest]
    if not fitting or not low >= 0:
        expected = " or ".join(f"0..{largest:g}" for largest in ranges)
        raise ValueError(f"its pixels hold {low:g} to {high:g}; expected {expected}: save it with 8 or 16 bits")
    grey = np.empty(values.shape, dtype=np.uint8)
    for row, given in zip(grey, values, strict=True):  # row by row, to save memory
        row[:] = (given * (255 / fitting[0])).round()
    return Image.fromarray(grey).convert("RGB")


def upright(image: Image.Image) -> Image.Image:
    """Return the image turned and mirrored according to its EXIF orientation."""
    return turned(image, orientation(image))


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) if the image has no readable one.

    >>> orientation(Image.new("L", (1, 1)))
    1
    """
    found = image.getexif().get(ExifTags.Base.Orientation)
    return found if found in _TURNS else 1


def turned(image: Image.Image, number: int) -> Image.Image:
    """Return an image of this EXIF orientation, turned and mirrored to be upright.

    >>> turned(Image.new("L", (4, 2)), 6).size
    (2, 4)
    """
    method = _TURNS.get(number)
    return image if method is None else image.transpose(method)


def read_image_file(path: Path, *, as_stored: bool = False) -> NDArray[np.uint8]:
    """Read the first page of an image file as RGB (H, W, 3) in 0..255, upright unless `as_stored` (see `to_rgb`).

    Raises `BadFileError` if the file is not readable.
    """
    if not as_stored:
        return np.asarray(open_rgb(path))
    with open_image(path) as image:
        return np.asarray(to_rgb(image))


def read_pixels(image: ImageLike) -> NDArray[np.uint8]:
    """Return an image as RGB (H, W, 3) in 0..255, upright.

    Args:
        image: File; URL to download; Pillow image; array (H, W), (H, W, 3) or (H, W, 4); or tensor (3, H, W),
            (1, H, W), or a batch of one. Arrays and tensors contain bytes, or numbers in 0..1.

    >>> import torch
    >>> read_pixels(Image.new("L", (3, 2))).shape, read_pixels(torch.rand(1, 3, 2, 3)).shape
    ((2, 3, 3), (2, 3, 3))
    """
    from torch import Tensor  # late, because listing and checking files does not need it

    if isinstance(image, Path | str):
        if is_url(image):
            with downloaded(str(image)) as path:
                return read_image_file(path)
        return read_image_file(Path(image))
    if isinstance(image, Image.Image):
        return np.asarray(to_rgb(upright(image)))
    if isinstance(image, Tensor):
        if image.ndim == 4 and len(image) == 1:
            image = image[0]
        if image.ndim != 3 or image.shape[0] not in (1, 3):
            raise ValueError(f"a tensor must be (3, height, width) or (1, height, width), got {tuple(image.shape)}")
        return read_pixels(image.detach().cpu().permute(1, 2, 0).expand(-1, -1, 3).numpy())
    if not isinstance(image, np.ndarray):
        raise ValueError(
            f"an image is a file, a URL, a Pillow image, an array or a tensor, not {type(image).__name__}"
        )
    if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))):
        raise ValueError(f"an array must be (height, width) or (height, width, 3), got {image.shape}")
    if np.issubdtype(image.dtype, np.floating):
        if not (image.size and image.min() >= 0 and image.max() <= 1):
            raise ValueError("an array or tensor of floating-point numbers must be in 0..1; give bytes for 0..255")
        image = (image * 255).round().astype(np.uint8)
    if image.dtype != np.uint8:
        raise ValueError(f"an array or tensor must be of uint8, or in 0..1, got {image.dtype}")
    return image if image.ndim == 3 and image.shape[2] == 3 else np.asarray(to_rgb(Image.fromarray(image)))


def several_images(source: Any) -> list[Any] | None:
    """Return the images of a list, an array (N, H, W, 3) or a tensor (N, 3, H, W); None for a single image.

    >>> several_images(["a.jpg", "b.jpg"]), several_images("a.jpg"), len(several_images(np.zeros((5, 4, 6, 3))))
    (['a.jpg', 'b.jpg'], None, 5)
    """
    several = isinstance(source, list | tuple) or (getattr(source, "ndim", None) == 4)
    return list(source) if several else None


def resized_image(image: NDArray[np.uint8], size: HeightWidth) -> NDArray[np.uint8]:
    """Resize an image (H, W, 3) to a height and width.

    >>> resized_image(np.zeros((4, 6, 3), np.uint8), (2, 3)).shape
    (2, 3, 3)
    """
    if image.shape[:2] == size:
        return image
    return np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR))
