"""Views of an image in which features are computed."""

from typing import NamedTuple

from PIL import Image


class View(NamedTuple):
    """Scale and optional left-to-right flip of an image."""

    scale: float
    flipped: bool = False

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the height and width of the view, from those of the image.

        >>> View(0.5).size((9, 12))
        (4, 6)
        """
        return max(1, round(size[0] * self.scale)), max(1, round(size[1] * self.scale))

    def image(self, picture: Image.Image, resampling: Image.Resampling) -> Image.Image:
        """Return the scaled and flipped image."""
        height, width = self.size((picture.height, picture.width))
        resized = picture if picture.size == (width, height) else picture.resize((width, height), resampling)
        return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.flipped else resized

    def __str__(self) -> str:
        return f"{self.scale:g}{'-flipped' if self.flipped else ''}"
