"""Effect of removing an attention term from a trained model, on its scores or its patch features."""

# h x w patches, C channels

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset

from dnlnet.artifacts.load import default_device
from dnlnet.artifacts.model_file import ModelFile, open_model
from dnlnet.artifacts.weights import load_network
from dnlnet.data.images import read_image_file
from dnlnet.data.inputs import find_images
from dnlnet.engine.evaluate import evaluate as evaluate_task
from dnlnet.lens.measure.ablate import TERMS, Term, ablate
from dnlnet.lens.measure.confusion import ConfusionMatrix
from dnlnet.lens.trace.capture import capture
from dnlnet.lens.trace.recorded import layer_number
from dnlnet.libraries.transformer import Transformer, load_transformer
from dnlnet.progress import SILENT, Progress
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.labelled_folder import find_labelled
from dnlnet.runs.probe import LinearProbe, PatchFeatures, images_of, train_probe

CHANGE, COSINE, MIOU = "relative change", "cosine", "miou"
Condition = tuple[str | None, Term]  # a layer, or None for all layers, and the term removed from it


@dataclass(frozen=True)
class AblationEffect:
    """Measurements without one term, in one layer or in all layers. Missing values are None."""

    layer: str | None
    term: Term
    values: dict[str, float | None]


@dataclass(frozen=True)
class Ablation:
    """Measurements of a model with all terms, and without each term.

    Args:
        images: Number of images.
        whole: Measurements with all terms.
        effects: Measurements without a term, starting with all layers together.
    """

    images: int
    whole: dict[str, float | None]
    effects: list[AblationEffect] = field(default_factory=list)

    @property
    def layers(self) -> list[str | None]:
        """Layers in order; None stands for all layers together."""
        return list(dict.fromkeys(effect.layer for effect in self.effects))

    def value(self, layer: str | None, term: Term, measure: str) -> float | None:
        """Return one measured value."""
        found = next(effect for effect in self.effects if (effect.layer, effect.term) == (layer, term))
        return found.values[measure]


def ablate_model(
    model: str | Path | ModelFile,
    data: Path | str | None = None,
    *,
    split: str | None = None,
    terms: Sequence[Term] = TERMS,
    layers: Sequence[int | str] | None = None,
    limit: int | None = None,
    progress: Progress = SILENT,
) -> Ablation:
    """Score a dnlnet model with all terms, then without each term, in all layers and in each layer.

    Args:
        model: Model file, run folder or name.
        data: Folder of its data set.
        split: Split to score on. Default: the test split of the recipe.
        terms: Terms to remove.
        layers: Attention layers by name, or by number in running order. Default: all.
        limit: Maximum number of samples. For a detector, all others count as images without detections.
        progress: Progress observer.
    """
    file = open_model(model)
    samples = open_test_data(file, None if data is None else Path(data), split)
    count = len(samples) if limit is None else min(limit, len(samples))
    task = file.recipe.test_task(file.classes, samples)
    device = torch.device(default_device())
    network = load_network(file).to(device).eval()

    def score(number: int, name: str, progress: Progress = progress) -> dict[str, float | None]:
        part: Subset[Any] = Subset(samples, range(number))  # type: ignore[arg-type]
        metric = evaluate_task(task, network, part, device=device, name=name, progress=progress)
        return dict(task.summarize(metric, file.recipe.name).values)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no attention was seen")
        with capture(network) as attention:
            score(1, "", SILENT)
    if not attention:
        raise ValueError(f"{file.path}: has no attention, so there is no term to remove")
    result = Ablation(count, score(count, "all terms"))
    for layer, term in _conditions(layers, list(attention), terms):
        with ablate(network, term, layer):
            values = score(count, f"without {term} of {layer or 'all layers'}")
        result.effects.append(AblationEffect(layer, term, values))
    return result


def ablate_transformer(
    model: str | Transformer,
    images: Sequence[Path] = (),
    *,
    data: Path | None = None,
    data_set: str | None = None,
    split: str | None = None,
    training_split: str = "train",
    weights: Path | str | None = None,
    size: int | None = None,
    terms: Sequence[Term] = TERMS,
    layers: Sequence[int | str] | None = None,
    limit: int | None = None,
    training_limit: int | None = None,
    progress: Progress = SILENT,
) -> Ablation:
    """Measure a transformer without each term, on images or on a labelled data set; see `ablate_features`.

    Args:
        model: Transformer of another library, or its name.
        images: Image files and folders.
        data: Folder of a data set with a class per pixel, used to train and score a linear classifier of patches.
        data_set: Name of the data set. Default: recognised by its folders.
        split: Split to score on. Default: val, or test if there is no val.
        training_split: Split that the classifier is trained on.
        weights, size: Options of `load_transformer`.
        terms, layers: See `ablate_model`.
        limit, training_limit: Maximum number of images for scoring and for training.
        progress: Progress observer; also receives notes about the transformer.
    """
    if (data is None) == (not images):
        raise ValueError(f"{model}: give images to see how far its features move, or --data DIR with labels")
    if data is None and data_set is not None:
        raise ValueError(f"--data-set {data_set}: needs the folder of the data set; give it with --data DIR")
    pixels: Iterable[tuple[NDArray[np.uint8], Any]]
    if data is None:
        found = find_images(images)
        for problem in found.problems:
            raise ValueError(str(problem))
        paths = list(found.paths.values())[:limit]
        pixels, total = ((read_image_file(path), None) for path in paths), len(paths)
    else:
        folder = find_labelled(data, data_set)
        training, test = folder.split(training_split), folder.split(split)
        pixels, total = images_of(test, limit), min(len(test), limit or len(test))
    if not isinstance(model, Transformer):
        model = load_transformer(model, weights, size, device=default_device())
    probe = None if data is None else train_probe(model, training, training_limit, progress)
    result = ablate_features(model, pixels, probe=probe, terms=terms, layers=layers, total=total, progress=progress)
    for note in model.notes:
        progress.say(note)
    return result


@torch.no_grad()
def ablate_features(
    model: Transformer,
    images: Iterable[tuple[NDArray[np.uint8], Any]],
    *,
    probe: LinearProbe | None = None,
    terms: Sequence[Term] = TERMS,
    layers: Sequence[int | str] | None = None,
    total: int | None = None,
    progress: Progress = SILENT,
) -> Ablation:
    """Measure the change of a transformer's patch features without a term, and the loss of a classifier on them.

    F are the patch features of an image with all terms, G those without one. Measured are the relative change
    |G - F| / |F| and the cosine between F and G, averaged over patches. Both are then averaged over images.

    Args:
        model: Transformer, e.g. from `dnlnet.libraries.transformer.load_transformer`.
        images: Pairs of pixels (H, W, 3) and labels (H, W) or None.
        probe: Linear classifier of patches, scored on every labelled pixel.
        terms, layers: See `ablate_model`.
        total: Number of images for the progress bar, if known.
        progress: Progress observer.
    """
    count = 0
    sums: dict[Condition, dict[str, float]] = {}
    matrices: dict[Condition | None, ConfusionMatrix] = {}

    def score(condition: Condition | None, features: Tensor, labels: NDArray[np.uint8]) -> None:
        assert probe is not None
        matrix = matrices.setdefault(condition, ConfusionMatrix(len(probe.weight)))
        matrix.update(probe.predict(features, (labels.shape[0], labels.shape[1])).cpu(), torch.from_numpy(labels))

    patches = PatchFeatures(model)
    with progress.track("images", total) as seen:
        for pixels, labels in images:
            image = model.prepare(pixels)
            whole = patches.of(image)
            if probe is not None:
                score(None, whole, labels)
            for condition in _conditions(layers, patches.layers(image), terms):
                layer, term = condition
                with ablate(model.network, term, layer):
                    found = patches.of(image)
                moved = sums.setdefault(condition, {CHANGE: 0.0, COSINE: 0.0})
                moved[CHANGE] += float((found - whole).norm() / whole.norm())
                moved[COSINE] += float(torch.cosine_similarity(found, whole, dim=-1).mean())
                if probe is not None:
                    score(condition, found, labels)
            count += 1
            seen.advance()
    if not count:
        raise ValueError("there are no images")

    def scores(condition: Condition | None) -> dict[str, float | None]:
        return {MIOU: matrices[condition].known_scores()["miou"]} if probe is not None else {}

    effects = [
        AblationEffect(
            layer, term, {**{name: value / count for name, value in moved.items()}, **scores((layer, term))}
        )
        for (layer, term), moved in sums.items()
    ]
    return Ablation(count, {CHANGE: 0.0, COSINE: 1.0, **scores(None)}, effects)


def _conditions(layers: Sequence[int | str] | None, names: Sequence[str], terms: Sequence[Term]) -> list[Condition]:
    """Pair each term with all layers together, then with each chosen layer if the model has several."""
    chosen = list(names) if layers is None else [names[layer_number(layer, names)] for layer in layers]
    places: list[str | None] = [None, *chosen] if len(names) > 1 else [None]
    return [(layer, term) for layer in places for term in terms]
