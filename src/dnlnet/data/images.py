"""Images from files, URLs and memory as RGB arrays."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.downloads import downloaded, is_url
from dnlnet.data.image_files import HeightWidth, open_image, open_rgb, to_rgb, upright

if TYPE_CHECKING:
    from torch import Tensor

ImageLike = Union[Path, str, Image.Image, NDArray[Any], "Tensor"]


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
        image: File; URL to download; Pillow image; array (H, W), (H, W, 3) or (H, W, 4); or tensor (3, H, W) or
            (1, H, W). Arrays and tensors contain bytes, or numbers in 0..1.

    >>> import torch
    >>> read_pixels(Image.new("L", (3, 2))).shape, read_pixels(torch.rand(3, 2, 3)).shape
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
