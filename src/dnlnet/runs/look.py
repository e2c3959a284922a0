"""Load models to inspect: dnlnet's own, and transformers of other libraries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.artifacts.load import TrainedModel, default_device, load_together
from dnlnet.artifacts.model_file import ModelFile
from dnlnet.attention import Terms
from dnlnet.lens.show.attended_image import ImageModel
from dnlnet.lens.trace.recorded import HeadChoice, LayerChoice, RecordedAttention
from dnlnet.libraries.transformer import Transformer, is_transformer_name, load_transformer

AnyModel = str | Path | ModelFile | TrainedModel | Transformer


def load_to_look(
    models: Sequence[AnyModel],
    *,
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice | None = None,
) -> dict[str, TrainedModel | Transformer]:
    """Load models to inspect. Return them by title, in order.

    Args:
        models: Loaded models, model files, run folders, or names, including `timm:NAME`, `torchvision:NAME` and
            `transformers:NAME_OR_FOLDER`.
        weights: Weights of the first model if it is a transformer: a local file, or "none" for random weights.
        size: Shorter side of images for transformers, in pixels.
        layers, heads: Layers and heads of transformers; see `LayerChoice`.
    """
    foreign = [is_foreign(model) for model in models]
    titles = [model.name if isinstance(model, Transformer) else str(model) for model in models]
    if len(set(titles)) < len(models) and any(foreign):
        raise ValueError("a model is named twice; compare different ones")
    if not any(foreign):
        for option, value in (("--weights", weights), ("--size", size), ("--layers", layers), ("--heads", heads)):
            if value is not None:
                raise ValueError(
                    f"{option}: is for transformers of other libraries (timm:NAME, torchvision:NAME or "
                    "transformers:NAME), not for our models"
                )
    elif weights is not None and not foreign[0]:
        raise ValueError(f"--weights: is for a transformer named first, and {models[0]} has its own weights")
    ours = [model for model in models if not isinstance(model, Transformer) and not is_foreign(model)]
    trained = iter((load_together(ours) if ours else {}).items())
    found: dict[str, TrainedModel | Transformer] = {}
    for number, model in enumerate(models):
        if isinstance(model, Transformer):
            found[model.name] = model
        elif foreign[number]:
            found[str(model)] = load_transformer(
                str(model),
                weights=weights if number == 0 else None,
                size=size,
                layers=layers,
                heads="mean" if heads is None else heads,
                device=default_device(),
            )
        else:
            title, loaded = next(trained)
            found[title] = loaded
    return found


def is_foreign(model: AnyModel) -> bool:
    """Return whether a model is a transformer of another library, or its name."""
    return isinstance(model, Transformer) or (isinstance(model, str | Path) and is_transformer_name(model))


def predictors_of(models: Mapping[str, TrainedModel | Transformer]) -> dict[str, Any]:
    """Return the predictor of each model. Raises if a video model is compared with a transformer."""
    found = {title: model if isinstance(model, Transformer) else model.predictor for title, model in models.items()}
    if any(isinstance(model, Transformer) for model in models.values()):
        for title, model in found.items():
            if not isinstance(model, ImageModel):
                raise ValueError(f"{title}: takes no images, unlike {next(iter(found))}; compare models of images")
    return found


@dataclass(frozen=True)
class Look:
    """Attention of a model over one image.

    Args:
        attention: Attention by layer.
        covered: Share of the maps' height and width that the image covers; the rest is padding.
    """

    attention: Mapping[str, Terms | RecordedAttention]
    covered: tuple[float, float] = (1.0, 1.0)


def looker(
    title: str, model: TrainedModel | Transformer, layers: Sequence[int | str] | None = None
) -> Callable[[NDArray[np.uint8]], Look]:
    """Return a function that runs the model on an image (H, W, 3) and returns its attention.

    Args:
        title: Title of the model.
        model: Image model.
        layers: Layers of a transformer. Default: all.
    """
    if isinstance(model, Transformer):
        choice = LayerChoice(layers)

        def look(pixels: NDArray[np.uint8]) -> Look:
            captured = model.look(pixels)
            if layers is None:
                return Look(captured)
            return Look({layer.call.name: layer for layer in choice.of(captured).values()})

        return look
    predictor = model.predictor
    if not isinstance(predictor, ImageModel):
        raise ValueError(f"{title} sees videos, not images; choose another model")

    def look_at_blocks(pixels: NDArray[np.uint8]) -> Look:
        views = predictor.attention_views(title, pixels)
        return Look({view.title: view.terms for view in views}, views[0].covered)

    return look_at_blocks
