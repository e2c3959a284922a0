"""Figures, numbers and a page of what models attend to in pictures, as files."""

# H, W size of the picture

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.downloads import is_url
from dnlnet.data.inputs import Inputs, find_pictures
from dnlnet.data.labelled import BadFileError, Labels, Problem
from dnlnet.data.outputs import writing_problem
from dnlnet.data.pictures import PictureLike, read_pixels, several_pictures
from dnlnet.files import atomic_write, write_json
from dnlnet.lens.show.drawn import Drawn
from dnlnet.lens.show.explorer import explorer_page
from dnlnet.lens.show.figures import attention_figure
from dnlnet.lens.show.layer_figure import layer_figure
from dnlnet.lens.show.layers import left_out, with_few_layers
from dnlnet.lens.show.panels import PRINT_DOTS, save_figure
from dnlnet.lens.show.record import record
from dnlnet.lens.show.views import Picture, PictureModel, Point, classes_of
from dnlnet.results import Kind, is_result
from dnlnet.signals import hold_stop_signals

Query = tuple[int, ...]  # x, y in pixels, and in a clip the frame
MAX_PIXELS = 4_000_000
# Of a transformer, unless layers are chosen: rows of a figure, layers in it, and views of all pictures in a page.
MOST_ROWS, MOST_LAYERS, PAGE_VIEWS = 12, 4, 32


@dataclass(frozen=True)
class Request:
    """What is to be shown, and where it goes.

    Args:
        inputs: pictures or videos, and folders of them, as paths; or pictures as `read_pixels` takes them.
        queries: points in pixels, (x, y) or (x, y, frame); without any, points are chosen.
        out: folder for figures, maps and their descriptions.
        page: file for the page that explores all pictures; with neither, the result keeps figures and pictures.
        max_pixels: larger pictures are made smaller.
        every_layer: of a transformer is shown, even if they are many, for somebody has chosen them.
        force: overwrite files in `out` that are not figures of earlier calls.
        report: called with what a user should know about an input.
        start: called with the number of inputs.
        advance: called after each of them.
    """

    inputs: Sequence[Any]
    queries: Sequence[Query] = ()
    out: Path | None = None
    page: Path | None = None
    max_pixels: int = MAX_PIXELS
    every_layer: bool = False
    force: bool = False
    report: Callable[[str], None] = lambda _: None
    start: Callable[[int], None] = lambda _: None
    advance: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls,
        source: Any,
        queries: Sequence[Query] = (),
        several: Callable[[Any], list[Any] | None] = several_pictures,
        **options: Any,
    ) -> "Request":
        """A request for one picture or video, a folder, or several of them, with the other arguments by name."""
        parts = several(source)
        inputs = [source] if parts is None else parts
        return cls(
            [Path(one) if isinstance(one, str) and not is_url(one) else one for one in inputs], queries, **options
        )

    @property
    def kept(self) -> bool:
        """Whether nothing is written, so that the result keeps what is shown."""
        return self.out is None and self.page is None


@dataclass
class Attended(Drawn):
    """What became of a request.

    Args:
        count: inputs that were found.
        problems: what could not be shown, with its path.
        out, page: what was written, if anything was.
        figures, pictures: what is shown of each input, if nothing was written; `figures` has that of each picture or
            video, `plot` gives the first one.
    """

    count: int
    problems: list[str] = field(default_factory=list)
    out: Path | None = None
    page: Path | None = None
    figures: list[Figure] = field(default_factory=list, repr=False)
    pictures: list[Picture] = field(default_factory=list, repr=False)

    @property
    def shown(self) -> int:
        """Inputs that were shown."""
        return self.count - len(self.problems)

    def plot(self) -> Figure:
        """The figure of the first input."""
        if not self.figures:
            raise ValueError("the figures are in files; leave out `out` and `page` to have them here")
        return self.figures[0]

    def save(self, path: Path | str) -> None:
        """Write the figure of the first input as PNG, PDF and so on, or as .html the page that explores all."""
        if Path(path).suffix.lower() not in (".html", ".htm"):
            super().save(path)
        elif self.pictures:
            write_page(Path(path), self.pictures)
        else:
            raise ValueError("the page is for pictures that were not written to files, and not for videos")

    def __repr__(self) -> str:
        what = f"{self.shown} of {self.count} shown"
        return f"Attended({', '.join([what, *(f'written: {path}' for path in (self.out, self.page) if path)])})"


def attend_pictures(
    models: Mapping[str, PictureModel], request: Request, labels: Callable[[Path], Labels | None] | None = None
) -> Attended:
    """Write what the blocks of models attend to in pictures.

    Args:
        models: by their titles; they know the same classes.
        request: of what.
        labels: finds the true classes (H, W) of a picture, or None; leave it out to show none.
    """
    points = [_point(query) for query in request.queries]
    shown: list[Picture] = []
    figures: list[Figure] = []
    told: set[str] = set()

    def show(name: Path, source: PictureLike) -> None:
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


def write_page(path: Path, pictures: Sequence[Picture], *, every_layer: bool = False) -> str:
    """Write the page that explores pictures, and return what it leaves out, in words."""
    most = max(1, PAGE_VIEWS // len(pictures))
    few = pictures if every_layer else [with_few_layers(picture, most) for picture in pictures]
    missing = left_out(pictures[0].views, few[0].views)
    with atomic_write(path) as temporary:
        temporary.write_text(explorer_page(few, note=missing), encoding="utf-8")
    return missing


def attend_each(
    find: Callable[[Iterable[Path], Path | None], Inputs],
    request: Request,
    show: Callable[[Path, Any], None],
    kind: str = "picture",
) -> Attended:
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
        _require_free([shown_files(request.out / name) for name in inputs], found.paths.values(), request.force)
    request.start(len(inputs))
    for name, source in inputs.items():
        try:
            show(name, source)
        except BadFileError as error:
            problems.append(str(error))
        request.advance()
    if problems and request.kept:
        raise ValueError("; ".join(problems))
    result = Attended(len(inputs) + len(found.problems), problems)
    if result.shown:
        result.out = request.out
    return result


def shown_files(target: Path) -> list[Path]:
    """Return the files that show one input: figure, printable figure, maps, and their description."""
    return [target.with_name(target.name + end) for end in (".png", ".pdf", ".npz", ".json")]


def _require_free(targets: Iterable[Sequence[Path]], inputs: Iterable[Path], force: bool) -> None:
    """Raise if writing figures would destroy an input or, without `force`, a file that is not of a figure."""
    real = {path.resolve() for path in inputs}
    for png, pdf, npz, json in targets:
        for path, sign in ((png, png), (pdf, pdf), (npz, json), (json, json)):
            if not os.path.exists(path):  # a name that is too long does not exist either
                continue
            if path.resolve() in real:
                raise ValueError(f"{path}: is an input, and its figure would have this name; choose another folder")
            kind: Kind = "json" if sign is json else "figure"
            if not force and not (sign.is_file() and is_result(sign, kind)):
                raise ValueError(f"{path}: exists, and is no figure of dnlnet; choose another folder, or force it")


def write_shown(
    path: Path,
    target: Path,
    figure: Figure,
    content: dict[str, Any],
    arrays: Mapping[str, Any],
    dots: int = PRINT_DOTS,
) -> None:
    """What is shown of a picture or video, under one name with four endings, or none of it and a `BadFileError`."""
    png, pdf, npz, json = files = shown_files(target)
    try:
        with hold_stop_signals():
            save_figure(figure, png, dots)
            save_figure(figure, pdf, PRINT_DOTS)
            with atomic_write(npz) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **arrays)
            write_json(json, content)
    except OSError as error:
        raise BadFileError(Problem(path, writing_problem(error, files))) from None


def _point(query: Query) -> Point:
    """(row, column)."""
    if len(query) > 2:
        raise ValueError(f"--query {','.join(map(str, query))}: a picture has no frames; expected x,y")
    column, row = query
    return row, column


def _look(
    name: Path,
    source: PictureLike,
    models: Mapping[str, PictureModel],
    find_labels: Callable[[Path], Labels | None] | None,
    request: Request,
) -> Picture:
    """A picture with the views of all models' blocks, and its labels if they are known."""
    pixels = read_pixels(source)
    labels = None if find_labels is None or not isinstance(source, Path) else find_labels(source)
    if find_labels is not None and labels is None:
        request.report(f"{name}: is not a picture of the data set; shown without labels")
    pixels, labels = made_smaller(name, pixels, labels, request.max_pixels, request.report)
    views = [view for title, model in models.items() for view in model.views(title, pixels)]
    return Picture(str(name), pixels, views, labels, classes_of(models.values()))


def made_smaller(
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
