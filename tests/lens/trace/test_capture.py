from collections.abc import Callable

import pytest
import timm
import torch
from torch import nn
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

import dnlnet
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import Terms
from dnlnet.lens.trace.capture import capture, capture_blocks, find_blocks
from dnlnet.lens.trace.recorded import RecordedAttention


class Two(nn.Module):
    def __init__(self, variant: str = "dnl", dims: int = 2) -> None:
        super().__init__()
        self.first = NonLocalBlock(4, variant, dims)
        self.deep = nn.ModuleDict({"second": NonLocalBlock(4, "nl", dims)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.deep["second"](self.first(x).relu_())


@pytest.mark.parametrize("variant", VARIANTS)
def test_captured_maps_equal_those_of_the_block_on_its_input(variant: str) -> None:
    torch.manual_seed(0)
    net, x = Two(variant), torch.randn(2, 4, 5, 6)
    with capture(net) as blocks:
        net(x)
    assert list(blocks) == ["first", "deep.second"]
    expected = net.first.attention_maps(x, [(1, 2), (4, 5)])
    found = blocks["first"].maps([(1, 2), (4, 5)])
    for term in ("pairwise", "unary", "combined"):
        assert (getattr(found, term) is None) == (getattr(expected, term) is None)
        if getattr(expected, term) is not None:
            assert torch.equal(getattr(found, term), getattr(expected, term))


def test_capture_leaves_outputs_gradients_and_the_model_unchanged() -> None:
    torch.manual_seed(0)
    net, x = Two(), torch.randn(1, 4, 5, 6)
    expected = net(x)
    with capture(net):
        output = net(x)
    assert torch.equal(output, expected)
    output.sum().backward()
    assert net.first.value.weight.grad is not None
    assert not [module for module in net.modules() if module._forward_pre_hooks]


def test_hooks_are_removed_after_an_error() -> None:
    net = Two()

    def fail() -> None:
        with capture(net):
            net(torch.randn(1, 3, 5, 6))

    with pytest.raises(ValueError, match="4, H, W"):
        fail()
    assert not net.first._forward_pre_hooks


def test_nothing_is_recorded_after_the_context() -> None:
    net = Two()
    with capture(net) as blocks:
        net(torch.randn(1, 4, 5, 6))
    net(torch.randn(1, 4, 9, 9))
    assert blocks["first"].size == (5, 6)


def test_the_last_of_several_passes_is_kept() -> None:
    net = Two()
    with capture(net) as blocks:
        net(torch.randn(1, 4, 5, 6))
        net(torch.randn(1, 4, 7, 3))
    assert blocks["first"].size == (7, 3)


def test_memory_is_linear_in_the_number_of_positions() -> None:
    net = Two("nl")
    with capture(net) as blocks:
        net(torch.randn(1, 4, 30, 30))
    terms = blocks["first"]
    kept = {
        id(tensor): tensor.numel()
        for logits in (terms.pairwise, terms.unary, terms.coupled)
        for tensor in (logits.query, logits.key)
    }
    assert sum(kept.values()) < 10 * 900


def test_video_blocks_are_captured_with_their_frames() -> None:
    net = Two(dims=3)
    with capture(net) as blocks:
        net(torch.randn(1, 4, 3, 5, 6))
    assert blocks["first"].maps([(2, 4, 5)]).pairwise.shape == (1, 1, 3, 5, 6)


def test_blocks_inserted_in_a_backbone_are_found() -> None:
    net = timm.create_model("resnet18", pretrained=False).eval()
    dnlnet.insert(net, {"layer3.0": "dnl", "layer4.1": "gc"})
    assert set(find_blocks(net)) == {"layer3.0.non_local", "layer4.1.non_local"}
    with capture(net) as blocks, torch.no_grad():
        net(torch.rand(1, 3, 64, 96))
    assert blocks["layer3.0.non_local"].size == (4, 6)
    assert blocks["layer4.1.non_local"].pairwise is None


def test_blocks_inside_a_detector_are_captured() -> None:
    detector = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None).eval()
    dnlnet.insert(detector.backbone.body, {"13": "dnl"})
    with capture(detector) as blocks, torch.no_grad():
        detector([torch.rand(3, 100, 150)])
    (terms,) = blocks.values()
    assert terms.maps([(0, 0)]).pairwise.shape == (1, 1, *terms.size)
    assert len(terms.size) == 2


def test_an_unknown_name_lists_the_captured_ones() -> None:
    net = Two()
    with pytest.warns(UserWarning, match="no attention was seen"), capture(net) as blocks:
        pass
    with pytest.raises(KeyError, match="no attention has run"):
        blocks["first"]
    with capture(net) as blocks:
        net(torch.randn(1, 4, 5, 6))
    with pytest.raises(KeyError, match=r"no attention 'third' has run; captured: first, deep\.second"):
        blocks["third"]


def test_a_model_without_blocks_is_refused() -> None:
    for look in (find_blocks, lambda network: capture_blocks(network).__enter__()):
        with pytest.raises(ValueError, match="Linear has no non-local block"):
            look(nn.Linear(2, 2))


def test_only_blocks_are_captured_on_request() -> None:
    net = Two()
    with capture_blocks(net) as blocks:
        net(torch.randn(1, 4, 5, 6))
    assert list(blocks) == ["first", "deep.second"]
    assert not [module for module in net.modules() if module._forward_pre_hooks]


def test_blocks_and_other_attention_in_one_model() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = NonLocalBlock(4, "nl")
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.block(x).flatten(2).mT
            return self.attention(tokens, tokens, tokens)[0]

    net, x = Both().eval(), torch.randn(1, 4, 5, 6)
    with capture(net) as attention:
        net(x)
    assert {name: type(found) for name, found in attention.items()} == {
        "block": Terms,
        "attention": RecordedAttention,
    }
    assert torch.equal(attention["block"].maps([(1, 2)]).combined, net.block.attention_maps(x, [(1, 2)]).combined)
    assert attention["attention"].maps([(1, 2)]).combined.shape == (2, 1, 5, 6)
    with capture(net, layers=["block"]) as attention:
        net(x)
    assert list(attention) == ["block"]


def test_an_explicit_block_is_recorded_once() -> None:
    """The block's own softmax(query.key) does not count as another attention."""

    class Explicit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = NonLocalBlock(4, "nl")
            self.block.forward = self.block.forward_explicit

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x)

    net = Explicit()
    with capture(net) as attention:
        net(torch.randn(1, 4, 5, 6))
    assert {name: type(found) for name, found in attention.items()} == {"block": Terms}


def test_a_model_without_attention_warns() -> None:
    net = timm.create_model("resnet18", pretrained=False).eval()
    expected = pytest.warns(UserWarning, match=r"no attention was seen: ResNet did not run .*, or has no softmax")
    with expected, capture(net), torch.no_grad():
        net(torch.rand(1, 3, 32, 32))


def test_unknown_layers_warn_with_the_known_names() -> None:
    net = Two()
    expected = pytest.warns(UserWarning, match="no attention was seen in third, fourth: ")
    with expected, capture(net, layers=["third", "fourth"]):
        net(torch.randn(1, 4, 5, 6))


def test_dropout_in_training_warns() -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True)
    expected = pytest.warns(
        UserWarning, match=r"training mode: its dropout is not part of the maps; call model\.eval"
    )
    with expected, capture(layer):
        layer(torch.randn(1, 5, 12))
    layer.eval()
    with capture(layer):
        layer(torch.randn(1, 5, 12))
    net = Two().train()
    with capture(net):  # without dropout, training does not matter
        net(torch.randn(1, 4, 5, 6))


def _compiled(net: nn.Module) -> nn.Module:
    return torch.compile(net)


def _compiled_in_place(net: nn.Module) -> nn.Module:
    net.compile()
    return net


def _inside(net: nn.Module) -> nn.Module:
    return nn.Sequential(torch.compile(net))


@pytest.mark.parametrize("form", [_compiled, _compiled_in_place, _inside])
def test_a_compiled_model_is_refused(form: Callable[[nn.Module], nn.Module]) -> None:
    net = form(nn.Sequential(nn.MultiheadAttention(4, 2)))
    with pytest.raises(ValueError, match="a compiled model hides its attention; give"), capture(net):
        pass
