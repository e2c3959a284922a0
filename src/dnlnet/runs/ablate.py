"""What a trained model loses without a term of its attention: scores, and features of patches."""

# h x w patches, C channels

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset

from dnlnet.artifacts.load import default_device, load_network
from dnlnet.artifacts.model_file import find_model, read_model_file
from dnlnet.engine.evaluate import evaluate as evaluate_task
from dnlnet.lens.measure.ablate import TERMS, Term, ablate
from dnlnet.lens.show.layers import number_of
from dnlnet.lens.trace.capture import capture
from dnlnet.progress import SILENT, Progress
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.probe import Looker, Patches, Probe
from dnlnet.segmentation.metric import ConfusionMatrix

CHANGE, COSINE, MIOU = "relative change", "cosine", "miou"


@dataclass(frozen=True)
class Effect:
    """What a model measures with a term taken out of a layer, or of all; None where there is nothing to measure."""

    layer: str | None
    term: Term
    values: dict[str, float | None]


@dataclass(frozen=True)
class Ablation:
    """What was measured.

    Args:
        images: how many.
        whole: the model with all terms.
        effects: the model without some; those of all layers come first.
    """

    images: int
    whole: dict[str, float | None]
    effects: list[Effect] = field(default_factory=list)

    @property
    def layers(self) -> list[str | None]:
        """The layers in order, None for all together."""
        return list(dict.fromkeys(effect.layer for effect in self.effects))

    def value(self, layer: str | None, term: Term, measure: str) -> float | None:
        """One of the values that were measured."""
        found = next(effect for effect in self.effects if (effect.layer, effect.term) == (layer, term))
        return found.values[measure]


def ablate_model(
    model: str | Path,
    data: Path | str | None = None,
    *,
    split: str | None = None,
    terms: Sequence[Term] = TERMS,
    layers: Sequence[int | str] | None = None,
    images: int | None = None,
    progress: Progress = SILENT,
) -> Ablation:
    """Score one of our models with all terms, and with each taken out of all its attention and of each layer.

    Args:
        model: a model file, the folder of a run, or a name.
        data: folder of its data set.
        split: other than the one its recipe is tested on.
        terms: to take out.
        layers: names of blocks and other attention, or numbers in the order in which they run; default: all.
        images: only the first so many samples. A detector's score is over all, as if nothing were found in others.
        progress: Observer of each measurement.
    """
    file = read_model_file(find_model(str(model)))
    samples = open_test_data(file, None if data is None else Path(data), split)
    count = len(samples) if images is None else min(images, len(samples))
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
        raise ValueError(f"{file.path}: has no attention, so there is nothing to take out")
    result = Ablation(count, score(count, "all terms"))
    for layer, term in _conditions(layers, list(attention), terms):
        with ablate(network, term, layer):
            values = score(count, _title(layer, term))
        result.effects.append(Effect(layer, term, values))
    return result


@torch.no_grad()
def ablate_features(
    model: Looker,
    pictures: Iterable[tuple[NDArray[np.uint8], Any]],
    *,
    probe: Probe | None = None,
    terms: Sequence[Term] = TERMS,
    layers: Sequence[int | str] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Ablation:
    """How far the features of a transformer's patches move without a term, and what a classifier of them loses.

    With features F of all terms and G without one, over the patches of a picture: relative change |G - F| / |F|, and
    the mean cosine of the angle between G and F of a patch; both are means over pictures.

    Args:
        model: a transformer, such as `dnlnet.libraries.transformer.load_foreign` gives.
        pictures: pixels (H, W, 3), and labels (H, W) or None.
        probe: a linear classifier of patches, to be scored on every pixel that has a label.
        terms: to take out.
        layers: names of attention layers, or numbers in the order in which they run; default: all.
        progress: called after each picture.
    """
    count = 0
    sums: dict[tuple[str | None, Term], dict[str, float]] = {}
    matrices: dict[tuple[str | None, Term] | None, ConfusionMatrix] = {}

    def score(condition: tuple[str | None, Term] | None, features: Tensor, labels: NDArray[np.uint8]) -> None:
        assert probe is not None
        matrix = matrices.setdefault(condition, ConfusionMatrix(len(probe.weight)))
        matrix.update(probe.predict(features, (labels.shape[0], labels.shape[1])).cpu(), torch.from_numpy(labels))

    patches = Patches(model)
    for pixels, labels in pictures:
        image = model.prepare(pixels)
        whole = patches.of(image)
        if probe is not None:
            score(None, whole, labels)
        for condition in _conditions(layers, patches.layers(image), terms):
            layer, term = condition
            with ablate(model.network, term, layer):
                found = patches.of(image)
            total = sums.setdefault(condition, {CHANGE: 0.0, COSINE: 0.0})
            total[CHANGE] += float((found - whole).norm() / whole.norm())
            total[COSINE] += float(torch.cosine_similarity(found, whole, dim=-1).mean())
            if probe is not None:
                score(condition, found, labels)
        count += 1
        progress()
    if not count:
        raise ValueError("there are no pictures to look at")

    def scores(condition: tuple[str | None, Term] | None) -> dict[str, float | None]:
        return {MIOU: matrices[condition].known_scores()["miou"]} if probe is not None else {}

    effects = [
        Effect(layer, term, {**{name: value / count for name, value in total.items()}, **scores((layer, term))})
        for (layer, term), total in sums.items()
    ]
    return Ablation(count, {CHANGE: 0.0, COSINE: 1.0, **scores(None)}, effects)


def _conditions(
    layers: Sequence[int | str] | None, names: Sequence[str], terms: Sequence[Term]
) -> list[tuple[str | None, Term]]:
    """What is taken out of what: first of all layers, then of each that was asked for, unless there is only one."""
    places: list[str | None] = [None, *_chosen(layers, names)] if len(names) > 1 else [None]
    return [(layer, term) for layer in places for term in terms]


def _chosen(layers: Sequence[int | str] | None, names: Sequence[str]) -> list[str]:
    """Names of the layers that were asked for."""
    return list(names) if layers is None else [names[number_of(layer, names)] for layer in layers]


def _title(layer: str | None, term: Term) -> str:
    return f"without {term} of {'all layers' if layer is None else layer}"
