import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.backbones import Backbone
from dnlnet.lens.trace.capture import capture
from dnlnet.segmentation.network import ContextHead, Segmentor


def papers_network(variant: str | None) -> Segmentor:
    with torch.device("meta"):
        return Segmentor(Backbone("resnet101s", 8), 19, variant, gate="scalar_pairwise")


@pytest.mark.parametrize(("variant", "parameters"), [(None, 70_959_590), ("nl", 71_484_391), ("dnl", 71_484_904)])
def test_parameters_equal_the_papers_table(variant: str | None, parameters: int) -> None:
    model = papers_network(variant)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_parts_have_the_parameters_of_the_papers_network() -> None:
    model = papers_network(None)

    def count(*modules: torch.nn.Module) -> int:
        return sum(p.numel() for module in modules for p in module.parameters())

    assert count(model.auxiliary) == 4_729_875
    assert count(model.head.reduce) == 9_438_208
    assert count(model.head.refine) == 2_360_320
    assert count(model.head.fuse, model.head.classifier) == 11_807_251


@pytest.mark.parametrize(
    ("variant", "block"), [(None, 0), ("nl", 524_801), ("dnl", 525_314)], ids=["baseline", "nl", "dnl"]
)
def test_the_head_described_in_the_text_is_a_convolution_the_block_and_a_classifier(
    variant: str | None, block: int
) -> None:
    """3 x 3, 2048 to 512, with batch norm; 1 x 1, 512 to 19, with bias. Table 5 has 14 million more parameters."""
    with torch.device("meta"):
        model = Segmentor(Backbone("resnet101s", 8), 19, variant, head="text", gate="scalar_pairwise")
    backbone, auxiliary = 42_623_936, 4_729_875
    head = 9 * 2048 * 512 + 2 * 512 + 512 * 19 + 19
    assert sum(p.numel() for p in model.parameters()) == backbone + auxiliary + head + block


def test_the_text_head_uses_only_the_output_of_the_block() -> None:
    torch.manual_seed(0)
    head = ContextHead(6, 4, 3, NonLocalBlock(4), head="text").eval()
    x = torch.randn(2, 6, 5, 7)
    torch.testing.assert_close(head(x), head.classifier(head.block(head.reduce(x))))


def test_multiplications_equal_the_papers_network() -> None:
    with FlopCounterMode(display=False) as counter:
        papers_network(None)(torch.empty(1, 3, 769, 769, device="meta"))
    assert round(counter.get_total_flops() / 2e9, 3) == 689.624


@pytest.mark.parametrize("variant", [None, *VARIANTS])
def test_every_variant_has_logits_at_every_pixel_and_gradients_everywhere(variant: str | None) -> None:
    torch.manual_seed(0)
    model = Segmentor(Backbone("resnet18", 16), 5, variant, width=16)
    images = torch.rand(2, 3, 65, 49)
    output = model(images)
    assert output.logits.shape == output.auxiliary.shape == (2, 5, 65, 49)
    (output.logits.square().sum() + output.auxiliary.square().sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_auxiliary_head_is_only_for_training() -> None:
    model = Segmentor(Backbone("resnet18", 16), 5, None, width=16).eval()
    assert model(torch.rand(1, 3, 32, 32)).auxiliary is None


def test_a_zero_gate_makes_the_network_the_baseline() -> None:
    torch.manual_seed(0)
    model = Segmentor(Backbone("resnet18", 16), 3, "dnl", width=16, gate="scalar").eval()
    images = torch.rand(1, 3, 48, 48)
    with torch.no_grad():
        gated = model(images).logits
        model.head.block = None
        assert torch.equal(gated, model(images).logits)


def test_hrnet_joins_all_branches_at_the_finest_stride() -> None:
    with torch.device("meta"):
        model = Segmentor(Backbone("hrnet_w48"), 19, "dnl", width=360, fused_width=512, auxiliary=False)
        images = torch.empty(1, 3, 65, 97)
        with capture(model) as blocks:
            assert model(images).logits.shape == (1, 19, 65, 97)
    assert blocks["head.block"].size == (17, 25)
    assert model.head.reduce[0].in_channels == 720
    assert (model.head.block.query.out_features, model.head.fuse[0].in_channels) == (180, 1080)
    # As released: reduce and refine at 360, fuse to 512, and a classifier of 512.
    sizes = (720 * 360 * 9 + 720, 360 * 360 * 9 + 720, 1080 * 512 * 9 + 1024, 512 * 19 + 19)
    head = model.head
    for part, size in zip((head.reduce, head.refine, head.fuse, head.classifier), sizes, strict=True):
        assert sum(p.numel() for p in part.parameters()) == size


def test_invalid_networks_are_refused() -> None:
    with torch.device("meta"):
        with pytest.raises(ValueError, match="hrnet_w18"):
            Segmentor(Backbone("hrnet_w18"), 3)
        with pytest.raises(ValueError, match="classes=0"):
            Segmentor(Backbone("resnet18"), 0)
        with pytest.raises(ValueError, match="fused_width=9"):
            Segmentor(Backbone("resnet18"), 3, head="text", fused_width=9, width=8)
