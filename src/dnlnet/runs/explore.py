"""The application in the browser for chosen models."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dnlnet.artifacts.model_file import ModelFile
from dnlnet.lens.show.app import MAX_MEGABYTES, MAX_PIXELS, MOST_VIEWS, Explorer
from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.layers import left_out, with_few_layers
from dnlnet.lens.trace.recorded import HeadChoice
from dnlnet.libraries.transformer import Transformer
from dnlnet.runs.look import load_to_look, picture_models

_TRIAL = np.zeros((64, 64, 3), dtype=np.uint8)


def open_explorer(
    model: str | Path | ModelFile,
    *,
    against: Sequence[str | Path | ModelFile] = (),
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    max_pixels: int = MAX_PIXELS,
    report: Callable[[str], None] = print,
) -> Explorer:
    """What the application does, for these models; `dnlnet.lens.show.app.launch` starts it.

    Args:
        model, against, weights, size, layers, heads: as `dnlnet.attend` takes them.
        max_megabytes, max_pixels: larger files and pictures are refused.
        report: called with what a user should know.
    """
    models = load_to_look([model, *against], weights=weights, size=size, layers=layers, heads=heads)
    for title, each in models.items():
        if isinstance(each, Transformer):
            # Without attention, or such layers, there is nothing to start.
            trial = AttendedImage(title, _TRIAL, each.views(title, _TRIAL))
            few = trial if layers is not None else with_few_layers(trial, MOST_VIEWS)
            for note in (*each.source.notes, left_out(trial.views, few.views)):
                if note:
                    report(note)
    return Explorer(picture_models(models), max_megabytes, max_pixels, every_layer=layers is not None)
