"""Linear classifier of patches, trained on the features of a frozen transformer."""

# n patches, C channels, K classes; h x w patches, H x W pixels of an image

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.data.classes import IGNORE
from dnlnet.data.decoders import Labels
from dnlnet.data.labelled import LabelledImages
from dnlnet.lens.measure.features import FeatureSource, find_features, watch_features
from dnlnet.libraries.transformer import Transformer
from dnlnet.progress import SILENT, Progress
from dnlnet.runs.labelled_folder import read_labelled

_STEPS, _DECAY = 100, 1e-4


@dataclass(frozen=True)
class LinearProbe:
    """Multinomial logistic regression: W ((x - mean) / std) + b."""

    weight: Tensor  # (K, C)
    bias: Tensor  # (K,)
    mean: Tensor  # (C,)
    std: Tensor  # (C,)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (..., K) of features (..., C)."""
        return (features - self.mean) / self.std @ self.weight.T + self.bias

    def predict(self, features: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the class (H, W) of each pixel, after resizing patch logits (h, w, K) to the image size."""
        logits = self.logits(features).permute(2, 0, 1)[None]
        return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)[0].argmax(dim=0)


def fit_probe(features: Tensor, labels: Tensor, classes: int) -> LinearProbe:
    """Fit the classifier to features (n, C) and labels (n,) by L-BFGS from zero. The result is deterministic.

    The loss is the mean cross-entropy plus 1e-4 times the squared norm of W; features are standardised.

    >>> generator = torch.Generator().manual_seed(0)
    >>> features = torch.randn(40, 3, generator=generator)
    >>> probe = fit_probe(features, (features[:, 0] > 0).long(), classes=2)
    >>> (probe.logits(features).argmax(dim=1) == (features[:, 0] > 0)).all().item()
    True
    """
    if len(labels.unique()) < 2:
        raise ValueError("the patches of the training images are of one class; a classifier needs two or more")
    mean, std = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
    standard = (features - mean) / std
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
    return LinearProbe(weight.detach(), bias.detach(), mean, std)


def patch_labels(labels: Labels, size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the most frequent label (h, w) of each patch, which may be IGNORE.

    >>> patch_labels(np.array([[0, 0, 1], [0, 2, 1]], np.uint8), (1, 2))
    array([[0, 1]])
    """
    rows, columns = (np.arange(length) * count // length for length, count in zip(labels.shape, size, strict=True))
    patch = rows[:, None] * size[1] + columns
    counts = np.bincount((patch * 256 + labels).ravel(), minlength=size[0] * size[1] * 256)
    most: NDArray[np.int64] = counts.reshape(*size, 256).argmax(axis=-1)
    return most


def train_probe(
    model: Transformer, images: LabelledImages, limit: int | None = None, progress: Progress = SILENT
) -> LinearProbe:
    """Fit the classifier to the patches of labelled images, at most `limit` of them."""
    patches, features, labels = PatchFeatures(model), [], []
    with progress.track("training features", min(len(images), limit or len(images))) as seen:
        for pixels, truth in images_of(images, limit):
            found = patches.of(model.prepare(pixels))
            wanted = torch.from_numpy(patch_labels(truth, (found.shape[0], found.shape[1])))
            counted = wanted != IGNORE
            features.append(found[counted.to(found.device)])
            labels.append(wanted[counted])
            seen.advance()
    together = torch.cat(features)
    return fit_probe(together, torch.cat(labels).to(together.device), len(images.classes))


class PatchFeatures:
    """Patch features of images. Finds their module once per image size."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self._known: dict[torch.Size, tuple[FeatureSource, list[str]]] = {}

    def layers(self, image: Tensor) -> list[str]:
        """Return the attention layers that run on a prepared image."""
        return self._found(image)[1]

    def of(self, image: Tensor) -> Tensor:
        """Return the features (h, w, C) of a prepared image."""
        with watch_features(self.model.network, self._found(image)[0]) as features:
            self.model.run(image)
            return features()

    def _found(self, image: Tensor) -> tuple[FeatureSource, list[str]]:
        if image.shape not in self._known:
            source, attention = find_features(self.model.network, lambda: self.model.run(image))
            self._known[image.shape] = source, list(attention)
        return self._known[image.shape]


def images_of(images: LabelledImages, limit: int | None = None) -> Iterator[tuple[NDArray[np.uint8], Any]]:
    """Iterate over pixels (H, W, 3) and labels (H, W) of the images, at most `limit` of them."""
    for index in range(len(images) if limit is None else min(limit, len(images))):
        yield read_labelled(images, index)
