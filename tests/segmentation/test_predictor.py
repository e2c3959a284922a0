"""A trained segmentation network as a predictor."""

import torch

from dnlnet.data.classes import Classes
from dnlnet.segmentation.predictor import SegmentationModel
from dnlnet.segmentation.tiny import TinySegmentor


def test_a_pass_that_is_looked_into_keeps_nothing_for_a_backward_pass() -> None:
    model = SegmentationModel(TinySegmentor(3), Classes(["a", "b", "c"], [(0, 0, 0)] * 3))
    assert any(parameter.requires_grad for parameter in model.network.parameters())
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        logits = model.single_pass().logits(torch.zeros(3, 32, 32, dtype=torch.uint8))
    assert logits.shape == (1, 3, 32, 32)
    assert not kept
