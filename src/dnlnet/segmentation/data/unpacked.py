"""Images unpacked on disk, so that training reads crops instead of decoding whole files.

Decoding a 2048 x 1024 PNG takes longer than the rest of a training sample, and a run decodes each file hundreds of
times. Unpacked, an image and its labels take 8 MB, and only the rows of the crop are read.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.files import atomic_write

_FORMAT = 2  # version of the file format; raise it when images are read differently
_KEPT = 40  # characters kept of the image's name, because file systems limit the length


@dataclass(frozen=True)
class MappedImage:
    """Image in a memory-mapped file. `crop` reads only the rows it needs."""

    pixels: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def crop(self, box: tuple[int, int, int, int]) -> Image.Image:
        """Return the part inside a box of left, upper, right and lower."""
        left, upper, right, lower = box
        return Image.fromarray(np.ascontiguousarray(self.pixels[upper:lower, left:right]))


@dataclass(frozen=True)
class UnpackedImages(LabelledImages):
    """Labelled images that are unpacked into a folder when first opened.

    Changed images and damaged unpacked files are unpacked again. The folder can be deleted at any time.
    """

    folder: Path = Path()

    def open(self, index: int) -> tuple[MappedImage, MappedImage]:  # type: ignore[override]
        """Return the image and its raw label map, both memory-mapped."""
        pair = self.pairs[index]
        paths = [self._unpacked_path(path, pair) for path in (pair.image, pair.labels)]
        mapped = [_mapped(path) for path in paths]
        if any(array is None for array in mapped):
            for image, path in zip(super().open(index), paths, strict=True):
                with atomic_write(path) as temporary, temporary.open("wb") as file:
                    np.save(file, np.asarray(image))
            mapped = [_mapped(path) for path in paths]
        pixels, labels = mapped
        if pixels is None or labels is None:
            raise OSError(f"{self.folder}: a file just written here cannot be read back; check the disk")
        return MappedImage(pixels), MappedImage(labels)

    def _unpacked_path(self, path: Path, pair: Pair) -> Path:
        """Return the unpacked file of an image or its labels.

        The name depends on both files, because the image's orientation can turn its labels.
        """
        identity = (_FORMAT, *map(_state, (path, pair.image, pair.labels)), self.colour_labels)
        return self.folder / f"{path.stem[:_KEPT]}-{sha256(repr(identity).encode()).hexdigest()[:16]}.npy"


def unpack_into(images: LabelledImages, folder: Path) -> UnpackedImages:
    """Return the images, unpacked into this folder when first opened."""
    return UnpackedImages(**vars(images), folder=folder)


def _state(path: Path) -> tuple[str, int, int] | None:
    if not path.exists():
        return None
    state = path.stat()
    return str(path.resolve()), state.st_size, state.st_mtime_ns


def _mapped(path: Path) -> NDArray[np.uint8] | None:
    """Memory-map the array in a file, or return None if it is missing or damaged."""
    try:
        pixels: NDArray[np.uint8] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return pixels
