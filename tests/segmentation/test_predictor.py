"""Predictor of a trained segmentation network."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dnlnet.data.classes import Classes
from dnlnet.errors import TooMuchWorkError
from dnlnet.segmentation.inference import Inference, tiles
from dnlnet.segmentation.inference.tiles import MARGIN
from dnlnet.segmentation.predictor import SegmentationModel
from dnlnet.segmentation.tiny import TinySegmentor


def test_captured_passes_keep_nothing_for_backward() -> None:
    model = SegmentationModel(TinySegmentor(3), Classes(["a", "b", "c"], [(0, 0, 0)] * 3))
    assert any(parameter.requires_grad for parameter in model.network.parameters())
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        logits = model.single_pass().logits(torch.zeros(3, 32, 32, dtype=torch.uint8))
    assert logits.shape == (1, 3, 32, 32)
    assert not kept


class Recorded(nn.Module):
    """Network that classifies each pixel by brightness and records the sizes of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, int]] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.sizes.append((images.shape[-2], images.shape[-1]))
        return torch.cat([images[:, :1], -images[:, :1]], dim=1)


def smooth_image(height: int, width: int) -> NDArray[np.uint8]:
    y, x = np.mgrid[:height, :width]
    grey = 127 + 100 * np.sin(y / 90) * np.cos(x / 70)
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)


CLASSES = Classes(["bright", "dark"], [(255, 255, 255), (0, 0, 0)])


def test_an_image_above_the_limit_has_the_same_scale_as_one_below_it() -> None:
    network = Recorded()
    model = SegmentationModel(network, CLASSES, Inference(short_side=64, scales=(0.5, 1.0), flip=True))
    model.predict(smooth_image(199, 200), max_pixels=40_000)
    below, network.sizes = network.sizes, []
    large = smooth_image(201, 200)
    prediction = model.predict(large, max_pixels=40_000)
    assert below == [(32, 32)] * 2 + [(64, 64)] * 2
    assert network.sizes == below  # fits after resizing, so there are no tiles
    assert prediction.scores is None
    assert np.array_equal(prediction.labels, model.predict(large, max_pixels=10**6).labels)


@pytest.mark.parametrize("align_corners", [True, False])
def test_tiles_are_resized_by_the_scale_of_the_whole_image(align_corners: bool) -> None:
    network = Recorded()
    model = SegmentationModel(network, CLASSES, Inference(short_side=600, align_corners=align_corners))
    image = smooth_image(1200, 1800)
    whole = model.predict(image, max_pixels=10**7).labels
    assert network.sizes == [(600, 900)]
    network.sizes.clear()
    tiled = model.predict(image, max_pixels=90_000).labels
    assert len(network.sizes) > 4
    assert all(height * width <= 90_000 for height, width in network.sizes)
    cut = tiles((1200, 1800), 4 * 90_000, margin=2 * MARGIN)
    assert network.sizes == [(round(height / 2), round(width / 2)) for height, width in (t.seen_size for t in cut)]
    assert (tiled == whole).mean() > 0.998


def test_tiles_that_exceed_the_limit_together_are_refused() -> None:
    """Each tile alone is below the limit."""
    network = Recorded()
    model = SegmentationModel(network, CLASSES, Inference(short_side=20_000))
    with pytest.raises(TooMuchWorkError, match="500 x 400"):
        model.predict(smooth_image(400, 500), max_pixels=65_536)
    assert not network.sizes
