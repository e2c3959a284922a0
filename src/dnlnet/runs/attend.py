"""Show what trained models attend to."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel
from dnlnet.artifacts.model_file import ModelFile
from dnlnet.lens.show.attend_images import attend_images
from dnlnet.lens.show.attend_request import MAX_PIXELS, AttendRequest, AttendResult, Query
from dnlnet.lens.trace.recorded import HeadChoice
from dnlnet.libraries.transformer import Transformer
from dnlnet.runs.look import load_to_look, picture_models


def attend(
    model: str | Path | ModelFile | TrainedModel,
    inputs: Any,
    *,
    queries: Sequence[Query] = (),
    against: Sequence[str | Path | ModelFile | TrainedModel] = (),
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice | None = None,
    data: Path | str | None = None,
    out: Path | str | None = None,
    page: Path | str | None = None,
    max_pixels: int = MAX_PIXELS,
    force: bool = False,
    report: Callable[[str], None] = print,
    start: Callable[[int], None] = lambda _: None,
    advance: Callable[[], None] = lambda: None,
) -> AttendResult:
    """What models attend to in pictures or videos: the maps of query points, the unary map, both together.

    With neither `out` nor `page` nothing is written: the result has ``show()``, ``save("maps.png")`` for the figure,
    ``save("explore.html")`` for the page, and ``plot()``, and a notebook shows it by itself.

    Args:
        model: a trained model; a model file, run folder, bundled model, or name on the Hugging Face hub; or a
            transformer of another library: `timm:NAME`, `torchvision:NAME`, `transformers:NAME_OR_FOLDER`.
        inputs: a picture as `TrainedModel.predict` takes it, a video, a folder of them, or a list of all these.
        queries: points in pixels, (x, y), or (x, y, frame) in a clip; default: points well inside the regions.
        against: further models to compare with.
        weights: of a transformer: a local state dict, or "none"; default: its library downloads them.
        size: at which a transformer sees pictures, the shorter side in pixels; default: see `load_transformer`.
        layers: of a transformer, by number or name; default: some in figures, and all that fit in a page.
        heads: of a transformer: the mean over them (default), the number of one, or all.
        data: folder of the data set that the pictures are of: their labels are shown.
        out: folder that gets, for each input, a figure as PNG and PDF, the maps (.npz) and their description (.json).
        page: file for one page that explores all pictures in a browser.
        max_pixels: larger pictures are made smaller.
        force: overwrite files in `out` that are not figures of earlier calls.
        report: called with what a user should know about an input.
        start, advance: called with the number of inputs, and after each of them.
    """
    models = load_to_look([model, *against], weights=weights, size=size, layers=layers, heads=heads)
    known = next((each for each in models.values() if isinstance(each, TrainedModel)), None)
    make_request = AttendRequest.of if known is None else known.request
    request = make_request(
        inputs,
        queries,
        out=None if out is None else Path(out),
        page=None if page is None else Path(page),
        max_pixels=max_pixels,
        every_layer=layers is not None,
        force=force,
        report=report,
        start=start,
        advance=advance,
    )
    if known is not None:
        recipe = known.file.recipe
        finder = getattr(recipe, "label_finder", None)
        if data is not None and finder is None:
            raise ValueError(
                f"--data shows the labels of pixels, and the data of a {recipe.task} model have none: leave it out"
            )
        labels = {} if data is None or finder is None else {"labels": finder(Path(data))}
        result: AttendResult = known.predictor.attend(picture_models(models), request, **labels)
    elif data is not None:
        raise ValueError(f"--data: {model} knows no classes of pixels, so labels cannot be shown")
    else:
        result = attend_images(picture_models(models), request)
    for transformer in models.values():
        for note in transformer.notes if isinstance(transformer, Transformer) else ():
            report(note)
    return result
