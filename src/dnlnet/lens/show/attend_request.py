"""Request to show what models attend to, and its result."""

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
from dnlnet.progress import SILENT, Progress

Query = tuple[int, ...]  # x, y in pixels; for a clip also the frame
MAX_PIXELS = 4_000_000


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
        problems: Failed inputs, with the reason.
        out, page: Folder and file written, if any.
        figures: Figure of each input, if nothing was written.
        images: Each image with its attention, if nothing was written.
    """

    count: int
    problems: list[str] = field(default_factory=list)
    out: Path | None = None
    page: Path | None = None
    figures: list[Figure] = field(default_factory=list, repr=False)
    images: list[AttendedImage] = field(default_factory=list, repr=False)

    @property
    def shown(self) -> int:
        """Number of inputs shown."""
        return self.count - len(self.problems)

    def plot(self) -> Figure:
        """Return the figure of the first input."""
        if not self.figures:
            raise ValueError("the figures were written to files; leave out `out` and `page` to get them here")
        return self.figures[0]

    def save(self, path: Path | str) -> None:
        """Write the figure of the first input (PNG, PDF, ...), or the page that explores all images (.html)."""
        if Path(path).suffix.lower() not in (".html", ".htm"):
            super().save(path)
        elif self.images:
            write_page(Path(path), self.images)
        else:
            raise ValueError("no images in memory: videos have no page, and files were written already")

    def __repr__(self) -> str:
        what = f"{self.shown} of {self.count} shown"
        return f"AttendResult({', '.join([what, *(f'written: {path}' for path in (self.out, self.page) if path)])})"
