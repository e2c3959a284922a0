"""Attention of a pixel of an uploaded image, as the application of `dnlnet explore` shows it."""

# H, W size of the image

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.images import open_image, read_image_file
from dnlnet.lens.show.attended_image import AttendedImage, ImageModel, Point, attend_image, maps_by_term
from dnlnet.lens.show.layer_views import with_few_layers
from dnlnet.lens.show.page.fit import shrink
from dnlnet.lens.show.panels import overlay_heat
from dnlnet.lens.show.strength import LEARNT_LITTLE, is_nearly_uniform, times_uniform

MAX_MEGABYTES = 20
MAX_PIXELS = 50_000_000  # of an upload, before downscaling
MAX_SIDE = 512  # pixels of the model's input, to answer within seconds
MAX_VIEWS = 4  # of a transformer
_MIN_SIDE = 8
_RADIUS = 5  # of the ring around the point, per 200 pixels of the image's height

Captioned = tuple[NDArray[np.uint8], str]  # pixels (H, W, 3) and their caption


class Explorer:
    """Logic of the application: load images and show what a pixel attends to.

    Args:
        models: Models by title.
        max_megabytes: Maximum file size.
        max_pixels: Maximum image size in pixels.
        max_side: Maximum side in pixels. Larger images are downscaled.
        all_layers: Show every layer of a transformer. Default: a few, spread over its depth.
    """

    def __init__(
        self,
        models: Mapping[str, ImageModel],
        max_megabytes: float = MAX_MEGABYTES,
        max_pixels: int = MAX_PIXELS,
        max_side: int = MAX_SIDE,
        all_layers: bool = False,
    ) -> None:
        for title, model in models.items():
            if not isinstance(model, ImageModel):
                raise ValueError(f"{title}: takes no images, which this application is for; see dnlnet attend")
        self.models, self.max_megabytes, self.max_pixels = models, max_megabytes, max_pixels
        self.max_side, self.all_layers = max_side, all_layers

    def open(self, path: Path) -> AttendedImage:
        """Run the models on an uploaded image, or raise a ValueError with one sentence for the user."""
        name, pixels = path.name, self._read(path)
        height, width = pixels.shape[:2]
        if max(height, width) > self.max_side:
            pixels = np.asarray(shrink(pixels, self.max_side))
            name += f", downscaled from {width} x {height} to {pixels.shape[1]} x {pixels.shape[0]} pixels"
        image = attend_image(self.models, name, pixels)
        return image if self.all_layers else with_few_layers(image, MAX_VIEWS)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        with _reading(path):
            megabytes = path.stat().st_size / 1e6
        if megabytes > self.max_megabytes:
            raise ValueError(f"the file has {megabytes:.1f} MB; the limit is {self.max_megabytes:g} MB")
        with _reading(path), open_image(path, decode=False) as opened:
            width, height = opened.size
        pixels = f"{path.name} has {width} x {height} pixels"
        if width * height > self.max_pixels:
            raise ValueError(f"{pixels}; the limit is {self.max_pixels:,} pixels")
        if min(width, height) < _MIN_SIDE:
            raise ValueError(f"{pixels}, too few to click in; at least {_MIN_SIDE} x {_MIN_SIDE} are needed")
        with _reading(path):
            return read_image_file(path)

    def at(self, image: AttendedImage, point: Point) -> tuple[list[str], list[Captioned]]:
        """Return sentences and captioned maps of each view for a pixel."""
        image.require_inside([point])
        row, column = point
        lines, shown = [f"Pixel x={column}, y={row} of {image.name}"], []
        for view in image.views:
            position = view.position(point, image)
            label = None if view.prediction is None else int(view.prediction[point])
            found = "" if label is None else f", predicted {image.class_name(label)}"
            size = " x ".join(map(str, view.terms.size))
            lines.append(f"{view.title}: row {position[0]}, column {position[1]} of its {size} map{found}")
            # Long captions are cut off.
            title = view.title if view.place is None or len(self.models) > 1 else view.place.layer_and_head
            for term, attention in maps_by_term(view.terms.maps([position])).items():
                strength = times_uniform(attention[0] if term == "unary" else attention[0, 0])
                over = view.over_image(strength, image)
                heat = (255 * overlay_heat(image.pixels, over)).astype(np.uint8)
                note = f": {LEARNT_LITTLE}" if is_nearly_uniform(over) else ""
                shown.append((mark_point(heat, point), f"{term.capitalize()}, {title}{note}"))
        return lines, shown

    def predictions(self, image: AttendedImage) -> list[Captioned]:
        """Return the predicted classes of each model, in their colours."""
        if image.classes is None:
            return []
        found = {view.title: view.prediction for view in image.views if view.prediction is not None}
        return [(image.classes.paint(labels), f"Prediction, {title}") for title, labels in found.items()]


def mark_point(pixels: NDArray[np.uint8], point: Point) -> NDArray[np.uint8]:
    """Return the pixels with a black and white ring around the point."""
    reach = _RADIUS * max(1, pixels.shape[0] // 200)
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    distance = np.hypot(rows - point[0], columns - point[1])
    pixels = pixels.copy()
    pixels[np.abs(distance - reach) < reach / 2] = 0
    pixels[np.abs(distance - reach) < reach / 4] = 255
    return pixels


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any failure to read an image into a one-sentence error that does not reveal its folder."""
    try:
        yield
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path.name} is not a readable image") from error
