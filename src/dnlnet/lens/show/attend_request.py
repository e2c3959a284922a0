"""What to show of a model's attention, and the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dnlnet.data.downloads import is_url
from dnlnet.data.images import several_images
from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.drawable import Drawable
from dnlnet.lens.show.page.html import write_page

Query = tuple[int, ...]  # x, y in pixels, and in a clip the frame
MAX_PIXELS = 4_000_000


@dataclass(frozen=True)
class AttendRequest:
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
        several: Callable[[Any], list[Any] | None] = several_images,
        **options: Any,
    ) -> "AttendRequest":
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
class AttendResult(Drawable):
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
    pictures: list[AttendedImage] = field(default_factory=list, repr=False)

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
        return f"AttendResult({', '.join([what, *(f'written: {path}' for path in (self.out, self.page) if path)])})"
