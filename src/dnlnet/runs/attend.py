"""Show what trained models and transformers attend to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel
from dnlnet.lens.show.attend import MAX_PIXELS, AttendRequest, AttendResult, Query, attend_images
from dnlnet.lens.trace.recorded import HeadChoice
from dnlnet.libraries.transformer import Transformer
from dnlnet.progress import BARS, Progress
from dnlnet.runs.look import AnyModel, load_to_look, predictors_of


def attend(
    model: AnyModel,
    inputs: Any,
    *,
    queries: Sequence[Query] = (),
    against: Sequence[AnyModel] = (),
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice | None = None,
    data: Path | str | None = None,
    out: Path | str | None = None,
    page: Path | str | None = None,
    max_pixels: int = MAX_PIXELS,
    force: bool = False,
    progress: Progress = BARS,
) -> AttendResult:
    """Show what models attend to in images or videos: pairwise, unary and combined maps.

    Without `out` and `page`, nothing is written. The result has ``show()``, ``plot()``, ``save("maps.png")`` for the
    figure and ``save("explore.html")`` for the page, and notebooks display it.

    Args:
        model: Loaded model, model file, run folder, bundled model, or name on the Hugging Face hub; or a transformer:
            `timm:NAME`, `torchvision:NAME` or `transformers:NAME_OR_FOLDER`.
        inputs: Image in any form that `TrainedModel.predict` accepts, video, folder, or a list of these.
        queries: Query points in pixels, (x, y), or (x, y, frame) in a clip. Default: points well inside regions.
        against: Other models to compare with.
        weights: Weights file of a transformer, or "none" for random weights. Default: downloaded by its library.
        size: Shorter side of images for a transformer, in pixels. Default: see `load_transformer`.
        layers: Layers of a transformer, by number or name. Default: a few in figures, as many as fit in the page.
        heads: Heads of a transformer: "mean" (default), one head number, or "all".
        data: Folder of the images' data set, to show their labels.
        out: Folder for the results: a figure (PNG and PDF), the maps (.npz) and their description (.json) per input.
        page: HTML file to explore all images in a browser.
        max_pixels: Maximum number of pixels. Larger images are downscaled.
        force: Overwrite files in `out` that are not results of earlier calls.
        progress: Progress observer.
    """
    models = load_to_look([model, *against], weights=weights, size=size, layers=layers, heads=heads)
    trained = next((each for each in models.values() if isinstance(each, TrainedModel)), None)
    make_request = AttendRequest.of if trained is None else trained.request
    request = make_request(
        inputs,
        queries,
        out=None if out is None else Path(out),
        page=None if page is None else Path(page),
        max_pixels=max_pixels,
        all_layers=layers is not None,
        force=force,
        progress=progress,
    )
    if trained is not None:
        recipe = trained.file.recipe
        finder = getattr(recipe, "label_finder", None)
        if data is not None and finder is None:
            raise ValueError(
                f"--data shows the labels of pixels, and the data of a {recipe.task} model have none: leave it out"
            )
        labels = {} if data is None or finder is None else {"labels": finder(Path(data))}
        result: AttendResult = trained.predictor.attend(predictors_of(models), request, **labels)
    elif data is not None:
        raise ValueError(f"--data: {model} has no classes of pixels, so labels cannot be shown")
    else:
        result = attend_images(predictors_of(models), request)
    for each in models.values():
        for note in each.notes if isinstance(each, Transformer) else ():
            progress.say(note)
    return result
