"""Show what models attend to in images: figures, maps and a page."""

# H, W size of the image

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.decoders import Labels
from dnlnet.data.images import ImageLike, read_pixels
from dnlnet.data.inputs import Inputs, find_images
from dnlnet.data.problems import BadFileError
from dnlnet.lens.show.attend_request import AttendRequest, AttendResult, Query
from dnlnet.lens.show.attended_image import AttendedImage, ImageModel, attend_image
from dnlnet.lens.show.attention_figure import attention_figure
from dnlnet.lens.show.attention_files import describe_image, require_free, write_attention
from dnlnet.lens.show.layer_figure import layer_figure
from dnlnet.lens.show.layers import left_out, with_few_layers
from dnlnet.lens.show.page.html import write_page
from dnlnet.lens.show.query_points import Point

_MAX_ROWS, _MAX_LAYERS = 12, 4  # in a transformer figure, unless the user selects layers

FindLabels = Callable[[Path], Labels | None]


def attend_images(
    models: Mapping[str, ImageModel], request: AttendRequest, labels: FindLabels | None = None
) -> AttendResult:
    """Show what models attend to in each image of a request.

    Args:
        models: Models by title, with the same classes.
        request: Images, and destination of the results.
        labels: Function that returns the true classes (H, W) of an image file, or None if it has none. Default: no
            labels.
    """
    points = [_point(query) for query in request.queries]
    images: list[AttendedImage] = []
    figures: list[Figure] = []
    notes: set[str] = set()

    def show(name: Path, source: ImageLike) -> None:
        pixels, truth = _read(name, source, labels, request)
        image = attend_image(models, str(name), pixels, truth)
        if points:
            image.require_inside(points)
            image = replace(image, start=points[0])
        if request.out is not None or request.in_memory:
            queries = points or image.interior_points()
            few = image if request.all_layers else with_few_layers(image, _MAX_ROWS, _MAX_LAYERS)
            note = left_out(image.views, few.views)
            if note and note not in notes:
                request.progress.say(f"figure: {note}")
            notes.add(note)
            draw = attention_figure if all(view.place is None for view in few.views) else layer_figure
            figure = draw(few, queries)
            if request.out is None:
                figures.append(figure)
            else:
                write_attention(name, request.out / name, figure, *describe_image(image, queries))
        if request.page is not None or request.in_memory:
            images.append(image)

    result = attend_each(find_images, request, show)
    if images and request.page is not None:
        note = write_page(request.page, images, all_layers=request.all_layers)
        if note:
            request.progress.say(f"page: {note}")
        result.page = request.page
    if request.in_memory:
        result.figures, result.images = figures, images
    return result


def attend_each(
    find: Callable[[Iterable[Path], Path | None], Inputs],
    request: AttendRequest,
    show: Callable[[Path, Any], None],
    kind: str = "image",
) -> AttendResult:
    """Call `show(name, source)` for each input of a request.

    The result reports unreadable files. If nothing is written, an unreadable file raises instead.

    Args:
        find: Function that finds the input files in paths and folders.
        request: Inputs, and destination of the results.
        show: Function that shows one input: a path, or an input in memory.
        kind: Name for inputs in memory.
    """
    paths = [given for given in request.inputs if isinstance(given, Path)]
    others = [given for given in request.inputs if not isinstance(given, Path)]
    found = find(paths, request.out) if paths or not others else Inputs()
    names = [kind] if len(others) == 1 else [f"{kind} {number}" for number in range(1, 1 + len(others))]
    inputs: dict[Path, Any] = {**found.paths, **dict(zip(map(Path, names), others, strict=True))}
    for text in found.left_out:
        request.progress.say(f"left out: {text}")
    problems = [str(problem) for problem in found.problems]
    if request.out is not None:
        require_free([request.out / name for name in inputs], found.paths.values(), request.force)
    with request.progress.track("looking", len(inputs)) as bar:
        for name, source in inputs.items():
            try:
                show(name, source)
            except BadFileError as error:
                problems.append(str(error))
            bar.advance()
    if problems and request.in_memory:
        raise ValueError("; ".join(problems))
    result = AttendResult(len(inputs) + len(found.problems), problems)
    if result.shown:
        result.out = request.out
    return result


def _point(query: Query) -> Point:
    """Return (row, column)."""
    if len(query) > 2:
        raise ValueError(f"--query {','.join(map(str, query))}: an image has no frames; expected x,y")
    column, row = query
    return row, column


def _read(
    name: Path, source: ImageLike, find_labels: FindLabels | None, request: AttendRequest
) -> tuple[NDArray[np.uint8], Labels | None]:
    """Read an image and its labels, downscaled to the request's limit."""
    pixels = read_pixels(source)
    labels = None if find_labels is None or not isinstance(source, Path) else find_labels(source)
    if find_labels is not None and labels is None:
        request.progress.say(f"{name}: not an image of the data set; shown without labels")
    return limit_pixels(name, pixels, labels, request.max_pixels, request.progress.say)


def limit_pixels(
    path: Path | str, pixels: NDArray[np.uint8], labels: Labels | None, most: int, say: Callable[[str], None]
) -> tuple[NDArray[np.uint8], Labels | None]:
    """Downscale an image (H, W, 3) and its labels to at most `most` pixels; `say` receives a note."""
    height, width = pixels.shape[:2]
    if height * width <= most:
        return pixels, labels
    scale = (most / (height * width)) ** 0.5
    size = max(1, int(width * scale)), max(1, int(height * scale))
    say(f"{path}: downscaled from {width} x {height} to {size[0]} x {size[1]} pixels")
    pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
    if labels is not None:
        labels = np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST))
    return pixels, labels
