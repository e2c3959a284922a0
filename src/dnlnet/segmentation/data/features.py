"""Training samples made of a frozen backbone's features.

Features are computed in several views of an image, each with a scale and an optional flip. Training draws random
crops of the feature maps.
"""

# C channels, h, w size of a grid, H, W size of the image

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import IGNORE
from dnlnet.data.images import open_rgb
from dnlnet.data.labelled import LabelledImages
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.recipes.features import FrozenNetwork, Source
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.schema import View
from dnlnet.segmentation.stages import Features, Grid


class FeatureSample(NamedTuple):
    """Features on a grid, the labels of its pixels, and the image file."""

    features: Features  # float16
    labels: Tensor  # (stride h, stride w) of a crop, or (H, W) of a whole image
    name: str


class Extractor(FrozenNetwork):
    """Frozen backbone that computes the stages of a network.

    Args:
        network: Network whose backbone is copied and whose stages are used.
        settings: Backbone settings of the recipe, which identify the features.
        precision: Precision of training.
    """

    def __init__(self, network: FrozenSegmentor, settings: Mapping[str, Any], precision: str = "float32") -> None:
        super().__init__(network.backbone, settings, network.stages, precision)
        self.stages = network.stages

    def __call__(self, image: Path, view: View) -> list[Tensor]:
        """Return the map (C_i, h_i, w_i) of each stage in float16."""
        seen = view.image(open_rgb(image), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(seen)).permute(2, 0, 1)[None]
        maps = self.maps(normalised(pixels))
        return [maps[stage][0] for stage in self.stages]


class FeatureCrops(ImageSamples[LabelledImages, FeatureSample]):
    """Random crops of the features of labelled images, with the labels of their pixels.

    Each crop depends only on the seed, the epoch and the index, so that a run can resume.

    Args:
        images: Labelled images. Raises if they are incomplete.
        source: Source of the features.
        views: Views; one is drawn for each sample.
        crop: Height and width in grid positions.
        grid: Grid of the network.
        seed: Random seed of the run.
    """

    def __init__(
        self,
        images: LabelledImages,
        source: Source[View],
        views: Sequence[View],
        crop: tuple[int, int],
        grid: Grid,
        seed: int = 0,
    ) -> None:
        self.crop, self.grid, self.seed = crop, grid, require_seed(seed)
        self.source, self.views = source, tuple(views)
        super().__init__(images.require_complete())

    def __getitem__(self, draw: tuple[int, int]) -> FeatureSample:
        index, epoch = draw
        rng = np.random.default_rng((self.seed, epoch, index))
        view = self.views[int(rng.integers(len(self.views)))]
        maps, labels = maps_and_labels(self.images, self.source, index, view)
        top, left = (
            int(rng.integers(max(0, whole - length) + 1))
            for whole, length in zip(maps[int(self.grid.detail)].shape[-2:], self.crop, strict=True)
        )
        stride = self.grid.stride
        window = labels.new_full([length * stride for length in self.crop], IGNORE)
        y, x = top * stride, left * stride
        pixels = labels[y : y + window.shape[0], x : x + window.shape[1]]
        window[: pixels.shape[0], : pixels.shape[1]] = pixels
        features = self.grid.window(maps, (top, left), self.crop)
        return FeatureSample(features, window, str(self.images.pairs[index].image))


class WholeFeatures(ImageSamples[LabelledImages, FeatureSample]):
    """Features of whole labelled images, for evaluation."""

    def __init__(self, images: LabelledImages, source: Source[View], grid: Grid) -> None:
        super().__init__(images.require_complete())
        self.source, self.grid = source, grid

    def __getitem__(self, index: int) -> FeatureSample:
        maps, labels = maps_and_labels(self.images, self.source, index, View(1.0))
        return FeatureSample(self.grid.whole(maps), labels, str(self.images.pairs[index].image))


def maps_and_labels(
    images: LabelledImages, source: Source[View], index: int, view: View
) -> tuple[list[Tensor], Tensor]:
    """Return the map of each stage in float16, and the labels (H, W), of an image in a view."""
    raw = images.aligned(index, images.image_size(index), images.open_labels(index))
    seen = view.image(Image.fromarray(images.decoded(index, raw)), Image.Resampling.NEAREST)
    return source(images.pairs[index].image, view), torch.from_numpy(np.array(seen))
