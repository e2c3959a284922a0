"""A linear classifier of patches on a frozen transformer's features."""

# n patches, C channels, K classes, h x w patches of a picture of H x W pixels

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from dnlnet.data.classes import IGNORE
from dnlnet.data.labelled import LabelledImages, Labels
from dnlnet.lens.measure.features import FeatureSource, find_features, watch_features

_STEPS, _DECAY = 100, 1e-4


class PatchModel(Protocol):
    """A network that looks at pictures, such as a transformer of another library."""

    @property
    def network(self) -> nn.Module:
        """In evaluation mode."""
        ...

    def prepare(self, pixels: NDArray[np.uint8]) -> Tensor:
        """A picture (H, W, 3) in 0..255 as the network sees it, (1, 3, h, w)."""
        ...

    def run(self, images: Tensor) -> object:
        """Let the network see prepared images."""
        ...


@dataclass(frozen=True)
class LinearProbe:
    """Multinomial logistic regression: W ((x - mean) / deviation) + b."""

    weight: Tensor  # (K, C)
    bias: Tensor  # (K,)
    mean: Tensor  # (C,)
    deviation: Tensor  # (C,)

    def logits(self, features: Tensor) -> Tensor:
        """(..., K) of features (..., C)."""
        return (features - self.mean) / self.deviation @ self.weight.T + self.bias

    def predict(self, features: Tensor, size: tuple[int, int]) -> Tensor:
        """Classes (H, W) of each pixel: the logits (h, w, K) of patches, resized to the picture's own size."""
        logits = self.logits(features).permute(2, 0, 1)[None]
        return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)[0].argmax(dim=0)


def fit_probe(features: Tensor, labels: Tensor, classes: int) -> LinearProbe:
    """The classifier of patches, features (n, C) and labels (n,), by L-BFGS from zero: the same on every run.

    Its loss is the mean cross-entropy and 1e-4 times the squared length of W; features are standardised.

    >>> generator = torch.Generator().manual_seed(0)
    >>> features = torch.randn(40, 3, generator=generator)
    >>> probe = fit_probe(features, (features[:, 0] > 0).long(), classes=2)
    >>> (probe.logits(features).argmax(dim=1) == (features[:, 0] > 0)).all().item()
    True
    """
    if len(labels.unique()) < 2:
        raise ValueError("the patches of the training pictures are of one class; a classifier needs two or more")
    mean, deviation = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
    standard = (features - mean) / deviation
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimiser.zero_grad()
        value = F.cross_entropy(standard @ weight.T + bias, labels) + _DECAY * weight.square().sum()
        value.backward()
        return float(value.detach())

    with torch.enable_grad():
        optimiser.step(loss)
    return LinearProbe(weight.detach(), bias.detach(), mean, deviation)


def patch_labels(labels: Labels, size: tuple[int, int]) -> NDArray[np.int64]:
    """The most frequent label of each patch, (h, w); IGNORE where that is what most pixels have.

    >>> patch_labels(np.array([[0, 0, 1], [0, 2, 1]], np.uint8), (1, 2))
    array([[0, 1]])
    """
    rows, columns = (np.arange(length) * count // length for length, count in zip(labels.shape, size, strict=True))
    patch = rows[:, None] * size[1] + columns
    counts = np.bincount((patch * 256 + labels).ravel(), minlength=size[0] * size[1] * 256)
    most: NDArray[np.int64] = counts.reshape(*size, 256).argmax(axis=-1)
    return most


def train_probe(
    model: PatchModel, images: LabelledImages, count: int | None = None, progress: Callable[[], None] = lambda: None
) -> LinearProbe:
    """The classifier of a model's patches, learnt on labelled images, or on the first so many."""
    patches, features, labels = PatchFeatures(model), [], []
    for pixels, truth in pictures_of(images, count):
        found = patches.of(model.prepare(pixels))
        wanted = torch.from_numpy(patch_labels(truth, (found.shape[0], found.shape[1])))
        counted = wanted != IGNORE
        features.append(found[counted.to(found.device)])
        labels.append(wanted[counted])
        progress()
    together = torch.cat(features)
    return fit_probe(together, torch.cat(labels).to(together.device), len(images.classes))


class PatchFeatures:
    """Features of the patches of pictures; where they are found is found out once for each size."""

    def __init__(self, model: PatchModel) -> None:
        self.model = model
        self._known: dict[torch.Size, tuple[FeatureSource, list[str]]] = {}

    def layers(self, image: Tensor) -> list[str]:
        """The attention layers that run on an image."""
        return self._found(image)[1]

    def of(self, image: Tensor) -> Tensor:
        """Features (h, w, C) of a prepared image."""
        with watch_features(self.model.network, self._found(image)[0]) as features:
            self.model.run(image)
            return features()

    def _found(self, image: Tensor) -> tuple[FeatureSource, list[str]]:
        if image.shape not in self._known:
            source, attention = find_features(self.model.network, lambda: self.model.run(image))
            self._known[image.shape] = source, list(attention)
        return self._known[image.shape]


def pictures_of(images: LabelledImages, count: int | None = None) -> Iterator[tuple[NDArray[np.uint8], Any]]:
    """Pixels (H, W, 3) and labels (H, W) of the images, or of the first so many."""
    for index in range(len(images) if count is None else min(count, len(images))):
        picture, raw = images.open(index)
        yield np.asarray(picture), images.decoded(index, raw)
