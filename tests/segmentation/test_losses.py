import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dnlnet.segmentation.losses import Ohem, SegmentationLoss
from dnlnet.segmentation.network import SegmentorOutput


def sample(seed: int = 0, ignored: float = 0.2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 4, 6, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 6, 7), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < ignored] = 255
    return logits.requires_grad_(), labels


def by_sorting(logits: Tensor, labels: Tensor, ohem: Ohem) -> Tensor:
    """The mean over hard pixels, image by image, pixel by pixel, after a full sort."""
    picked = []
    for image, truth in zip(logits, labels, strict=True):
        pixels = [
            (float(image[:, y, x].detach().softmax(0)[k]), -image[:, y, x].log_softmax(0)[k])
            for y, row in enumerate(truth.tolist())
            for x, k in enumerate(row)
            if k != 255
        ]
        pixels.sort(key=lambda pixel: pixel[0])
        picked += [loss for rank, (p, loss) in enumerate(pixels) if rank < ohem.kept or p <= ohem.threshold]
    return torch.stack(picked).mean()


def test_without_options_it_is_pytorchs_cross_entropy() -> None:
    logits, labels = sample()
    losses = SegmentationLoss()(SegmentorOutput(logits), labels)
    torch.testing.assert_close(losses["main"], F.cross_entropy(logits, labels, ignore_index=255))


def test_class_weights_are_pytorchs() -> None:
    logits, labels = sample()
    weights = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)
    losses = SegmentationLoss(weights)(SegmentorOutput(logits), labels)
    torch.testing.assert_close(losses["main"], F.cross_entropy(logits, labels, weights, ignore_index=255))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 60), st.floats(0.05, 0.95), st.floats(0, 0.9))
def test_hard_examples_by_selection_are_those_of_a_full_sort(
    seed: int, kept: int, threshold: float, ignored: float
) -> None:
    logits, labels = sample(seed, ignored)
    if (labels == 255).all():
        return
    ohem = Ohem(threshold=threshold, kept=kept)
    loss = SegmentationLoss(ohem=ohem)(SegmentorOutput(logits), labels)["main"]
    torch.testing.assert_close(loss, by_sorting(logits, labels, ohem))


def test_fewer_counted_pixels_than_kept_keeps_all_of_them() -> None:
    logits, labels = sample()
    loss = SegmentationLoss(ohem=Ohem(threshold=0.01, kept=10**6))(SegmentorOutput(logits), labels)["main"]
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, ignore_index=255))


@pytest.mark.parametrize("ohem", [None, Ohem(threshold=0.7, kept=10)])
@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)])
def test_a_crop_without_labels_has_loss_zero_and_gradients_zero(ohem: Ohem | None, weights: Tensor | None) -> None:
    logits, labels = sample()
    losses = SegmentationLoss(weights, ohem)(SegmentorOutput(logits, logits), torch.full_like(labels, 255))
    total = losses["main"] + losses["auxiliary"]
    total.backward()
    assert total.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_the_auxiliary_loss_is_plain_and_weighted() -> None:
    logits, labels = sample()
    losses = SegmentationLoss(ohem=Ohem(threshold=0.7, kept=1), auxiliary_weight=0.5)(
        SegmentorOutput(logits, logits), labels
    )
    torch.testing.assert_close(losses["auxiliary"], 0.5 * F.cross_entropy(logits, labels, ignore_index=255))


def test_a_logit_that_is_not_a_number_is_not_hidden() -> None:
    logits, labels = sample(ignored=0)
    with torch.no_grad():
        logits[0, 0, 0, 0] = torch.nan
    assert SegmentationLoss(ohem=Ohem(threshold=0.7, kept=5))(SegmentorOutput(logits), labels)["main"].isnan()


def test_wrong_input_is_refused() -> None:
    logits, labels = sample()
    with pytest.raises(ValueError, match=r"labels are \(2, 6, 6\), but logits of \(2, 4, 6, 7\) ask for \(2, 6, 7\)"):
        SegmentationLoss()(SegmentorOutput(logits), labels[:, :, 1:])
    with pytest.raises(ValueError, match="3 class weights for logits of 4 classes"):
        SegmentationLoss(torch.ones(3))(SegmentorOutput(logits), labels)
    with pytest.raises(ValueError, match="less than 1"):
        Ohem(threshold=1.5, kept=10)
