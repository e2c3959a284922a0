import pytest
import torch

from dnlnet import VARIANTS
from dnlnet.lens.trace.capture import capture
from dnlnet.segmentation.tiny import TinySegmentor


@pytest.mark.parametrize("variant", [None, *VARIANTS])
def test_logits_have_the_size_of_the_image(variant: str | None) -> None:
    model = TinySegmentor(classes=5, width=8, variant=variant)
    logits = model(torch.rand(2, 3, 33, 46)).logits
    assert logits.shape == (2, 5, 33, 46)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_untrained_positions_attend_to_similar_ones() -> None:
    """Query and key start equal, so the logit p_ij measures similarity."""
    block = TinySegmentor(classes=3, width=8).block
    assert block is not None
    torch.testing.assert_close(block.query.weight, block.key.weight)
    alike = torch.randn(1, 16, 1, 1).expand(-1, -1, 2, 1)
    features = 20 * torch.cat([alike, -alike], dim=3)  # columns 0 and 1 are opposites
    pairwise = block.attention_maps(features, queries=[(0, 0)]).pairwise[0, 0]
    assert pairwise[:, 0].sum() > 0.9


def test_the_block_is_at_a_quarter_of_the_size() -> None:
    model = TinySegmentor(classes=3, width=8).eval()
    with capture(model) as blocks:
        model(torch.rand(1, 3, 32, 48))
    assert blocks["block"].size == (8, 12)


def test_the_receptive_field_is_23_pixels() -> None:
    model = TinySegmentor(classes=3, width=4, variant=None).eval()
    image = torch.rand(1, 3, 96, 96, requires_grad=True)
    model.features(image)[0, :, 12, 12].sum().backward()
    assert image.grad is not None
    rows = image.grad.abs().sum(dim=(0, 1, 3)).nonzero()
    assert int(rows.max() - rows.min()) + 1 <= 23


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="classes=0"):
        TinySegmentor(classes=0)
    with pytest.raises(ValueError, match="'dnll'"):
        TinySegmentor(classes=2, variant="dnll")
