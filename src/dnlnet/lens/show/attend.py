"""Show what models attend to: the request, the run over its inputs, and the result."""

# H, W size of the image

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.decoders import Labels
from dnlnet.data.downloads import is_url
from dnlnet.data.images import ImageLike, read_pixels, several_images
from dnlnet.data.inputs import Inputs, find_images
from dnlnet.data.problems import BadFileError
from dnlnet.lens.show.attended_image import AttendedImage, ImageModel, Point, attend_image
from dnlnet.lens.show.drawable import Drawable
from dnlnet.lens.show.layer_views import left_out, with_few_layers
from dnlnet.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Query = tuple[int, ...]  # x, y in pixels; for a clip also the frame
MAX_PIXELS = 4_000_000
FindLabels = Callable[[Path], Labels | None]
_MAX_ROWS, _MAX_LAYERS = 12, 4  # in a transformer figure, unless the user selects layers
_FEW = 3  # inputs named in the text of a result


@dataclass(frozen=True)
class AttendRequest:
    """Inputs, and destination of the results.

    Args:
        inputs: Image or video files, folders, or images in memory in any form that `read_pixels` accepts.
        queries: Query points in pixels, (x, y) or (x, y, frame). Default: points well inside regions.
        out: Folder for figures, maps and their descriptions.
        page: HTML file to explore all images. Without `out` and `page`, the result keeps the figures.
        max_pixels: Maximum number of pixels. Larger images are downscaled.
        all_layers: Show every layer, however many. Set when the user selects layers.
        force: Overwrite files in `out` that are not results of earlier calls.
        progress: Progress observer.
    """

    inputs: Sequence[Any]
    queries: Sequence[Query] = ()
    out: Path | None = None
    page: Path | None = None
    max_pixels: int = MAX_PIXELS
    all_layers: bool = False
    force: bool = False
    progress: Progress = SILENT

    @classmethod
    def of(
        cls,
        source: Any,
        queries: Sequence[Query] = (),
        several: Callable[[Any], list[Any] | None] = several_images,
        **options: Any,
    ) -> "AttendRequest":
        """Create a request for one input or several, as `several` separates them; `options` are the other fields."""
        parts = several(source)
        inputs = [source] if parts is None else parts
        return cls(
            [Path(one) if isinstance(one, str) and not is_url(one) else one for one in inputs], queries, **options
        )

    @property
    def in_memory(self) -> bool:
        """True if nothing is written, so that the result keeps figures and images."""
        return self.out is None and self.page is None


@dataclass
class AttendResult(Drawable):
    """Outcome of a request.

    Args:
        count: Number of inputs found.
        models: Titles of the models.
        names: Names of the inputs shown.
        problems: Failed inputs, with the reason.
        out, page: Folder and file written, if any.
        figures: Figure of each input, if nothing was written.
        images: Each image with its attention, if nothing was written.
    """

    count: int
    models: Sequence[str]
    names: Sequence[str]
    problems: list[str] = field(default_factory=list)
    out: Path | None = None
    page: Path | None = None
    figures: "list[Figure]" = field(default_factory=list, repr=False)
    images: list[AttendedImage] = field(default_factory=list, repr=False)

    @property
    def shown(self) -> int:
        """Number of inputs shown."""
        return len(self.names)

    def plot(self) -> "Figure":
        """Return the figure of the first input."""
        if not self.figures:
            raise ValueError("the figures were written to files; leave out `out` and `page` to get them here")
        return self.figures[0]

    def save(self, path: Path | str) -> None:
        """Write the figure of the first input (PNG, PDF, ...), or the page that explores all images (.html)."""
        if Path(path).suffix.lower() not in (".html", ".htm"):
            super().save(path)
        elif self.images:
            from dnlnet.lens.show.page.html import write_page

            write_page(Path(path), self.images)
        else:
            raise ValueError("no images in memory: videos have no page, and files were written already")

    def __repr__(self) -> str:
        names = ", ".join([*self.names[:_FEW], *(["..."] if len(self.names) > _FEW else [])])
        parts = [f"{' and '.join(self.models)} on {names or 'nothing'}"]
        if self.problems:
            parts.append(f"{self.shown} of {self.count} shown")
        parts += [f"written: {path}" for path in (self.out, self.page) if path]
        return f"AttendResult({'; '.join(parts)})"


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
            figure = _draw(few, queries)
            if request.out is None:
                figures.append(figure)
            else:
                from dnlnet.lens.show.attend_files import describe_image, write_attention

                write_attention(name, request.out / name, figure, *describe_image(image, queries))
        if request.page is not None or request.in_memory:
            images.append(image)

    result = attend_each(find_images, models, request, show)
    if images and request.page is not None:
        from dnlnet.lens.show.page.html import write_page

        note = write_page(request.page, images, all_layers=request.all_layers)
        if note:
            request.progress.say(f"page: {note}")
        result.page = request.page
    if request.in_memory:
        result.figures, result.images = figures, images
    return result


def attend_each(
    find: Callable[[Iterable[Path], Path | None], Inputs],
    models: Iterable[str],
    request: AttendRequest,
    show: Callable[[Path, Any], None],
    kind: str = "image",
) -> AttendResult:
    """Call `show(name, source)` for each input of a request.

    The result reports unreadable files. If nothing is written, an unreadable file raises instead.

    Args:
        find: Function that finds the input files in paths and folders.
        models: Titles of the models.
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
    shown: list[str] = []
    problems = [str(problem) for problem in found.problems]
    if request.out is not None:
        from dnlnet.lens.show.attend_files import require_free

        require_free([request.out / name for name in inputs], found.paths.values(), request.force)
    with request.progress.track("looking", len(inputs)) as bar:
        for name, source in inputs.items():
            try:
                show(name, source)
                shown.append(str(name))
            except BadFileError as error:
                problems.append(str(error))
            bar.advance()
    if problems and request.in_memory:
        raise ValueError("; ".join(problems))
    result = AttendResult(len(inputs) + len(found.problems), list(models), shown, problems)
    if result.shown:
        result.out = request.out
    return result


def _draw(image: AttendedImage, points: Sequence[Point]) -> "Figure":
    """Draw the figure of an image with attention of our blocks or of a transformer."""
    from dnlnet.lens.show.block_figure import block_figure
    from dnlnet.lens.show.layer_figure import layer_figure

    draw = block_figure if all(view.place is None for view in image.views) else layer_figure
    return draw(image, points)


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
