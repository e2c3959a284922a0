"""Load models for `dnlnet explore`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.explorer import MAX_MEGABYTES, MAX_PIXELS, MAX_VIEWS, Explorer
from dnlnet.lens.show.layer_views import left_out, with_few_layers
from dnlnet.lens.trace.recorded import HeadChoice
from dnlnet.libraries.transformer import Transformer
from dnlnet.progress import BARS, Progress
from dnlnet.runs.look import AnyModel, load_to_look, predictors_of

_TRIAL = np.zeros((64, 64, 3), dtype=np.uint8)


def open_explorer(
    model: AnyModel,
    *,
    against: Sequence[AnyModel] = (),
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    max_pixels: int = MAX_PIXELS,
    progress: Progress = BARS,
) -> Explorer:
    """Load models for the application. `dnlnet.lens.show.explorer_app.launch` starts it.

    Args:
        model, against, weights, size, layers, heads: See `dnlnet.attend`.
        max_megabytes, max_pixels: Maximum size of an uploaded file and image.
        progress: Progress observer.
    """
    models = load_to_look([model, *against], weights=weights, size=size, layers=layers, heads=heads)
    for title, each in models.items():
        if isinstance(each, Transformer):
            # Fail now, not at the first upload, if the model has no such attention.
            trial = AttendedImage(title, _TRIAL, each.attention_views(title, _TRIAL))
            few = trial if layers is not None else with_few_layers(trial, MAX_VIEWS)
            for note in (*each.source.notes, left_out(trial.views, few.views)):
                if note:
                    progress.say(note)
    return Explorer(predictors_of(models), max_megabytes, max_pixels, all_layers=layers is not None)
