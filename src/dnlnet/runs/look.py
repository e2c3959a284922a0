"""Models to look into: ours, and transformers of other libraries."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel, default_device, load_together
from dnlnet.lens.show.attended_image import ImageModel
from dnlnet.lens.show.layers import Choice
from dnlnet.lens.trace.recorded import Heads
from dnlnet.libraries.transformer import ForeignModel, is_foreign, load_foreign


def load_to_look(
    models: Sequence[str | Path | TrainedModel],
    *,
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: Heads | None = None,
) -> dict[str, TrainedModel | ForeignModel]:
    """Models to be looked into, by what to call them, in their order.

    Args:
        models: trained models, model files, run folders, names; or `timm:NAME`, `torchvision:NAME`,
            `transformers:NAME_OR_FOLDER`.
        weights: of the first, if it is a transformer of another library: a file, or "none".
        size: at which transformers see pictures, the shorter side in pixels.
        layers, heads: of them; see `Choice`.
    """
    foreign = [not isinstance(model, TrainedModel) and is_foreign(model) for model in models]
    if len(set(map(str, models))) < len(models) and any(foreign):
        raise ValueError("a model is named twice; compare different ones")
    if not any(foreign):
        for option, value in (("--weights", weights), ("--size", size), ("--layers", layers), ("--heads", heads)):
            if value is not None:
                raise ValueError(
                    f"{option}: is for transformers of other libraries, timm:NAME, torchvision:NAME or "
                    "transformers:NAME; our models bring their own"
                )
    elif weights is not None and not foreign[0]:
        raise ValueError(f"--weights: are of the first model, and {models[0]} brings its own")
    ours = [model for model, other in zip(models, foreign, strict=True) if not other]
    trained = iter((load_together(ours) if ours else {}).items())
    choice, device = Choice(layers, "mean" if heads is None else heads), default_device()
    found: dict[str, TrainedModel | ForeignModel] = {}
    for number, model in enumerate(models):
        if foreign[number]:
            own = weights if number == 0 else None
            found[str(model)] = load_foreign(str(model), own, size, choice=choice, device=device)
        else:
            title, loaded = next(trained)
            found[title] = loaded
    return found


def predictors_of(models: dict[str, TrainedModel | ForeignModel]) -> dict[str, Any]:
    """Return what looks at inputs in each model. Beside a transformer, each must take images."""
    found = {title: model if isinstance(model, ForeignModel) else model.predictor for title, model in models.items()}
    if any(isinstance(model, ForeignModel) for model in models.values()):
        for title, model in found.items():
            if not isinstance(model, ImageModel):
                raise ValueError(f"{title}: takes no images, unlike {next(iter(found))}; compare models of images")
    return found
