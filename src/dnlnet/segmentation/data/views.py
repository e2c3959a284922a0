"""How a picture is looked at when its features are computed."""

from typing import NamedTuple

from PIL import Image


class View(NamedTuple):
    """How a picture is looked at: brought to a multiple of its size, and perhaps flipped left to right."""

    scale: float
    flipped: bool = False

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of a picture of this height and width.

        >>> View(0.5).size((9, 12))
        (4, 6)
        """
        return max(1, round(size[0] * self.scale)), max(1, round(size[1] * self.scale))

    def image(self, picture: Image.Image, resampling: Image.Resampling) -> Image.Image:
        """The picture as it is looked at."""
        height, width = self.size((picture.height, picture.width))
        resized = picture if picture.size == (width, height) else picture.resize((width, height), resampling)
        return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.flipped else resized

    def __str__(self) -> str:
        return f"{self.scale:g}{'-flipped' if self.flipped else ''}"
