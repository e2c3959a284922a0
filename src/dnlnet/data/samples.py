"""Base class of the samples of opened images, and a check of seeds."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from torch.utils.data import Dataset

from dnlnet.data.catalog import AnyOpened
from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed

AnySample = TypeVar("AnySample", covariant=True)


class ImageSamples(Dataset[AnySample], Generic[AnyOpened, AnySample]):
    """Samples of opened images.

    Args:
        images: Opened images without missing files.
    """

    def __init__(self, images: AnyOpened) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        return self.images.classes

    def files(self) -> Iterator[Listed]:
        """Yield the files of the samples, in order."""
        return self.images.files()


def require_seed(seed: int) -> int:
    """Return a seed that is valid for random generators, or raise."""
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    return seed
