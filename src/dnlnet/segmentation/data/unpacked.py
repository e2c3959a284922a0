"""Pictures kept unpacked on disk, so that an epoch reads windows of them instead of decoding them whole.

A 2048 x 1024 PNG takes longer to decode than all the rest of a training sample; a training run decodes it hundreds
of times. Unpacked it is 8 MB with its labels, and only the window's rows are read.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.files import atomic_write

_FORMAT = 2  # of the files; raise it when images are read differently
_KEPT = 40  # characters of a picture's name: it may be as long as the system allows


@dataclass(frozen=True)
class MappedPicture:
    """A picture whose pixels lie in a mapped file; `crop` reads those it returns."""

    pixels: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def crop(self, box: tuple[int, int, int, int]) -> Image.Image:
        """The part between left, upper, right and lower."""
        left, upper, right, lower = box
        return Image.fromarray(np.ascontiguousarray(self.pixels[upper:lower, left:right]))


@dataclass(frozen=True)
class UnpackedImages(LabelledImages):
    """The same images, unpacked into a folder when first opened.

    A file that changes, or an unpacked one that is damaged, is unpacked anew. Deleting the folder loses nothing.
    """

    folder: Path = Path()

    def open(self, index: int) -> tuple[MappedPicture, MappedPicture]:  # type: ignore[override]
        """The image and its raw label map, both mapped."""
        pair = self.pairs[index]
        paths = [self._unpacked_path(path, pair) for path in (pair.image, pair.labels)]
        mapped = [_mapped(path) for path in paths]
        if any(pixels is None for pixels in mapped):
            for picture, path in zip(super().open(index), paths, strict=True):
                with atomic_write(path) as temporary, temporary.open("wb") as file:
                    np.save(file, np.asarray(picture))
            mapped = [_mapped(path) for path in paths]
        image, labels = mapped
        if image is None or labels is None:
            raise OSError(f"{self.folder}: what was just unpacked here cannot be read; check the disk")
        return MappedPicture(image), MappedPicture(labels)

    def _unpacked_path(self, path: Path, pair: Pair) -> Path:
        """Return the file for one of a pair; the image's orientation can turn its labels."""
        identity = (_FORMAT, *map(_state, (path, pair.image, pair.labels)), self.colour_labels)
        return self.folder / f"{path.stem[:_KEPT]}-{sha256(repr(identity).encode()).hexdigest()[:16]}.npy"


def unpack_into(images: LabelledImages, folder: Path) -> UnpackedImages:
    """The same images, kept unpacked in this folder from the first time each is opened."""
    return UnpackedImages(**vars(images), folder=folder)


def _state(path: Path) -> tuple[str, int, int] | None:
    if not path.exists():
        return None
    state = path.stat()
    return str(path.resolve()), state.st_size, state.st_mtime_ns


def _mapped(path: Path) -> NDArray[np.uint8] | None:
    """The array in a file without reading it, or None if there is no whole one."""
    try:
        pixels: NDArray[np.uint8] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return pixels
