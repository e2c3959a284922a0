"""Show what trained models attend to."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dnlnet.artifacts.load import load_together
from dnlnet.lens.attend import MAX_PIXELS, Attended, Query, Request


def attend(
    model: str | Path,
    inputs: Sequence[Path | str],
    *,
    queries: Sequence[Query] = (),
    against: Sequence[str | Path] = (),
    data: Path | str | None = None,
    out: Path | str | None = None,
    page: Path | str | None = None,
    max_pixels: int = MAX_PIXELS,
    report: Callable[[str], None] = print,
    start: Callable[[int], None] = lambda _: None,
    advance: Callable[[], None] = lambda: None,
) -> Attended:
    """Write what models attend to in pictures or videos: the maps of query points, the unary map, both together.

    Args:
        model: a model file, the folder of a run, or a name on the Hugging Face hub.
        inputs: pictures or videos, and folders of them.
        queries: points in pixels, (x, y), or (x, y, frame) in a clip; default: points well inside the regions.
        against: further models to compare with.
        data: folder of the data set that the pictures are of: their labels are shown.
        out: folder that gets, for each input, a figure as PNG and PDF, the maps (.npz) and their description (.json).
        page: file for one page that explores all pictures in a browser.
        max_pixels: larger pictures are made smaller.
        report: called with what a user should know about an input.
        start, advance: called with the number of inputs, and after each of them.
    """
    if out is None and page is None:
        raise ValueError("nothing to write: give a folder for figures with -o OUT, a file with --page HTML, or both")
    models = load_together([model, *against])
    first = next(iter(models.values()))
    request = Request(
        [Path(given) for given in inputs],
        queries,
        None if out is None else Path(out),
        None if page is None else Path(page),
        max_pixels,
        report,
        start,
        advance,
    )
    predictors = {title: trained.predictor for title, trained in models.items()}
    return first.system.attend(predictors, request, None if data is None else Path(data), first.file.recipe.data.name)
