"""Figures, numbers and a page of what models attend to in pictures, as files."""

# H, W size of the picture

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
from dnlnet.data.inputs import Inputs, find_pictures
from dnlnet.data.problems import BadFileError
from dnlnet.lens.show.attend_request import AttendRequest, AttendResult, Query
from dnlnet.lens.show.attended_image import AttendedImage, ImageModel, classes_of
from dnlnet.lens.show.attention_figure import attention_figure
from dnlnet.lens.show.attention_files import record, require_free, shown_files, write_shown
from dnlnet.lens.show.layer_figure import layer_figure
from dnlnet.lens.show.layers import left_out, with_few_layers
from dnlnet.lens.show.page.html import write_page
from dnlnet.lens.show.query_points import Point

MOST_ROWS, MOST_LAYERS = 12, 4  # in a figure of a transformer, unless layers are chosen


def attend_images(
    models: Mapping[str, ImageModel], request: AttendRequest, labels: Callable[[Path], Labels | None] | None = None
) -> AttendResult:
    """Write what the blocks of models attend to in pictures.

    Args:
        models: by their titles; they know the same classes.
        request: of what.
        labels: finds the true classes (H, W) of a picture, or None; leave it out to show none.
    """
    points = [_point(query) for query in request.queries]
    shown: list[AttendedImage] = []
    figures: list[Figure] = []
    told: set[str] = set()

    def show(name: Path, source: ImageLike) -> None:
        picture = _look(name, source, models, labels, request)
        for point in points:
            picture.require_inside(point)
        if points:
            picture = replace(picture, start=points[0])
        if request.out is not None or request.kept:
            chosen = points or picture.interior_points()
            few = picture if request.every_layer else with_few_layers(picture, MOST_ROWS, MOST_LAYERS)
            missing = left_out(picture.views, few.views)
            if missing and missing not in told:
                request.report(f"figure: {missing}")
            told.add(missing)
            draw = attention_figure if all(view.place is None for view in few.views) else layer_figure
            figure = draw(few, chosen)
            if request.out is None:
                figures.append(figure)
            else:
                write_shown(name, request.out / name, figure, *record(picture, chosen))
        if request.page is not None or request.kept:
            shown.append(picture)

    result = attend_each(find_pictures, request, show)
    if shown and request.page is not None:
        missing = write_page(request.page, shown, every_layer=request.every_layer)
        if missing:
            request.report(f"page: {missing}")
        result.page = request.page
    if request.kept:
        result.figures, result.pictures = figures, shown
    return result


def attend_each(
    find: Callable[[Iterable[Path], Path | None], Inputs],
    request: AttendRequest,
    show: Callable[[Path, Any], None],
    kind: str = "picture",
) -> AttendResult:
    """Show each input, by the name of its results and its path, or itself if it is no file: then of this `kind`.

    One that cannot be read does not stop the others, unless nothing is written.
    """
    paths = [given for given in request.inputs if isinstance(given, Path)]
    others = [given for given in request.inputs if not isinstance(given, Path)]
    found = find(paths, request.out) if paths or not others else Inputs()
    names = [kind] if len(others) == 1 else [f"{kind} {number}" for number in range(1, 1 + len(others))]
    inputs: dict[Path, Any] = {**found.paths, **dict(zip(map(Path, names), others, strict=True))}
    for text in found.left_out:
        request.report(f"left out: {text}")
    problems = [str(problem) for problem in found.problems]
    if request.out is not None:
        require_free([shown_files(request.out / name) for name in inputs], found.paths.values(), request.force)
    request.start(len(inputs))
    for name, source in inputs.items():
        try:
            show(name, source)
        except BadFileError as error:
            problems.append(str(error))
        request.advance()
    if problems and request.kept:
        raise ValueError("; ".join(problems))
    result = AttendResult(len(inputs) + len(found.problems), problems)
    if result.shown:
        result.out = request.out
    return result


def _point(query: Query) -> Point:
    """(row, column)."""
    if len(query) > 2:
        raise ValueError(f"--query {','.join(map(str, query))}: a picture has no frames; expected x,y")
    column, row = query
    return row, column


def _look(
    name: Path,
    source: ImageLike,
    models: Mapping[str, ImageModel],
    find_labels: Callable[[Path], Labels | None] | None,
    request: AttendRequest,
) -> AttendedImage:
    """A picture with the views of all models' blocks, and its labels if they are known."""
    pixels = read_pixels(source)
    labels = None if find_labels is None or not isinstance(source, Path) else find_labels(source)
    if find_labels is not None and labels is None:
        request.report(f"{name}: is not a picture of the data set; shown without labels")
    pixels, labels = limit_pixels(name, pixels, labels, request.max_pixels, request.report)
    views = [view for title, model in models.items() for view in model.views(title, pixels)]
    return AttendedImage(str(name), pixels, views, labels, classes_of(models.values()))


def limit_pixels(
    path: Path | str, pixels: NDArray[np.uint8], labels: Labels | None, most: int, report: Callable[[str], None]
) -> tuple[NDArray[np.uint8], Labels | None]:
    """A picture (H, W, 3) and its labels with so many pixels at most; `report` is told if they are made smaller."""
    height, width = pixels.shape[:2]
    if height * width <= most:
        return pixels, labels
    scale = (most / (height * width)) ** 0.5
    size = max(1, int(width * scale)), max(1, int(height * scale))
    report(f"{path}: made smaller, from {width} x {height} to {size[0]} x {size[1]} pixels")
    pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
    if labels is not None:
        labels = np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST))
    return pixels, labels
