import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dnlnet.segmentation.losses import Ohem, SegmentationLoss, hard_pixels
from dnlnet.segmentation.network import SegmentorOutput


def sample(seed: int = 0, ignored: float = 0.2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 4, 6, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 6, 7), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < ignored] = 255
    return logits.requires_grad_(), labels


def by_sorting(logits: Tensor, labels: Tensor, ohem: Ohem, weights: Tensor | None = None) -> Tensor:
    """Implement the authors' selection with a full sort of the pixels of all images.

    The threshold is the larger of 0.7 and the probability at rank 100,000 x images (or the last); pixels strictly
    below it are selected, and the loss is the plain mean of their class-weighted losses.
    """
    pixels = []
    for image, truth in zip(logits, labels, strict=True):
        for y, row in enumerate(truth.tolist()):
            for x, k in enumerate(row):
                if k != 255:
                    p = image[:, y, x].log_softmax(0)[k]
                    pixels.append((p.item(), -p * (1 if weights is None else weights[k])))
    pixels.sort(key=lambda pixel: pixel[0])
    rank = min(ohem.kept * len(logits), len(pixels) - 1)
    limit = max(math.log(ohem.threshold), pixels[rank][0])
    picked = [loss for p, loss in pixels if p < limit]
    return torch.stack(picked).mean() if picked else logits.sum() * 0


def test_without_options_the_loss_is_pytorchs_cross_entropy() -> None:
    logits, labels = sample()
    losses = SegmentationLoss()(SegmentorOutput(logits), labels)
    torch.testing.assert_close(losses["main"], F.cross_entropy(logits, labels, ignore_index=255))


def test_class_weights_are_used_as_in_pytorch() -> None:
    logits, labels = sample()
    weights = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)
    losses = SegmentationLoss(weights)(SegmentorOutput(logits), labels)
    torch.testing.assert_close(losses["main"], F.cross_entropy(logits, labels, weights, ignore_index=255))


WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 1000),
    st.integers(1, 60),
    st.floats(0.05, 0.95),
    st.floats(0, 0.9),
    st.sampled_from([None, WEIGHTS]),
)
def test_hard_example_selection_equals_a_full_sort(
    seed: int, kept: int, threshold: float, ignored: float, weights: Tensor | None
) -> None:
    logits, labels = sample(seed, ignored)
    if (labels == 255).all():
        return
    ohem = Ohem(threshold=threshold, kept=kept)
    loss = SegmentationLoss(weights, ohem)(SegmentorOutput(logits), labels)["main"]
    torch.testing.assert_close(loss, by_sorting(logits, labels, ohem, weights))


def test_hard_pixels_of_all_images_are_ranked_together() -> None:
    """An easy image contributes no pixel if the other image of the batch has enough hard ones."""
    p = torch.tensor([[[0.1, 0.2, 0.3, 0.35]], [[0.9, 0.95, 0.8, 0.99]]])
    hard = hard_pixels(-p.log(), torch.ones_like(p, dtype=torch.bool), Ohem(threshold=0.05, kept=2))
    assert hard.tolist() == [[[True] * 4], [[False] * 4]]


@pytest.mark.parametrize("ohem", [None, Ohem(threshold=0.7, kept=10)])
@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)])
def test_a_crop_without_labels_has_loss_zero_and_gradients_zero(ohem: Ohem | None, weights: Tensor | None) -> None:
    logits, labels = sample()
    losses = SegmentationLoss(weights, ohem)(SegmentorOutput(logits, logits), torch.full_like(labels, 255))
    total = losses["main"] + losses["auxiliary"]
    total.backward()
    assert total.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_the_auxiliary_loss_is_plain_and_has_the_papers_weight() -> None:
    logits, labels = sample()
    losses = SegmentationLoss(ohem=Ohem(threshold=0.7, kept=1))(SegmentorOutput(logits, logits), labels)
    torch.testing.assert_close(losses["auxiliary"], 0.5 * F.cross_entropy(logits, labels, ignore_index=255))


def test_nan_logits_give_a_nan_loss() -> None:
    logits, labels = sample(ignored=0)
    with torch.no_grad():
        logits[0, 0, 0, 0] = torch.nan
    assert SegmentationLoss(ohem=Ohem(threshold=0.7, kept=5))(SegmentorOutput(logits), labels)["main"].isnan()


def test_invalid_input_is_refused() -> None:
    logits, labels = sample()
    with pytest.raises(ValueError, match=r"\(2, 6, 6\).*\(2, 4, 6, 7\)"):
        SegmentationLoss()(SegmentorOutput(logits), labels[:, :, 1:])
    with pytest.raises(ValueError, match=r"3 .*4 classes"):
        SegmentationLoss(torch.ones(3))(SegmentorOutput(logits), labels)
    with pytest.raises(ValueError, match="less than 1"):
        Ohem(threshold=1.5, kept=10)
