from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import blocked
from dnlnet.backbones import SlowOnly
from dnlnet.video.network import VideoClassifier, places
from dnlnet.video.schema import VideoClassifierModel


def settings(variant: str | None, placement: Any = None, dropout: float = 0.5, **block: Any) -> VideoClassifierModel:
    return VideoClassifierModel(variant=variant, preset="paper", placement=placement, dropout=dropout, block=block)


def tiny(variant: str | None = "dnl", **options: Any) -> VideoClassifier:
    return VideoClassifier(SlowOnly("slow_only_tiny", zero_init=False), 4, settings(variant, **options))


def build_r50(variant: str | None, **options: Any) -> VideoClassifier:
    with torch.device("meta"):
        return VideoClassifier(SlowOnly("slow_only_r50"), 400, settings(variant, **options))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def slow_only_parameters(layers: tuple[int, ...], classes: int) -> int:
    """Count by hand: stem, three convolutions and norms per bottleneck, and a shortcut per stage."""
    total, channels = 3 * 64 * 49 + 2 * 64, 64
    for count, width, frames in zip(layers, (64, 128, 256, 512), (1, 1, 3, 3), strict=True):
        for block in range(count):
            out = 4 * width
            total += frames * channels * width + 9 * width * width + width * out
            total += 2 * (width + width + out)
            total += channels * out + 2 * out if block == 0 else 0
            channels = out
    return total + channels * classes + classes


def block_parameters(variant: str, channels: int) -> int:
    """Count by hand: query and key of half the width with bias, value without, saliency with bias."""
    qk, value, saliency = 2 * (channels + 1) * channels // 2, channels * channels, channels + 1
    return {
        "nl": qk + value,
        "nl_pairwise": qk + value,
        "nl_unary": qk + value,
        "dnl_star": qk + value + saliency,
        "dnl_dagger": qk + value,
        "dnl": qk + value + saliency,
        "gc": value + saliency,
    }[variant]


def test_the_baseline_has_the_published_parameters_and_cost() -> None:
    model = build_r50(None)
    # ResNet-50 without its classifier, two more slices of nine convolutions, the classifier: 32.45 M.
    slices = 256 * (512 + 5 * 1024) + 512 * (1024 + 2 * 2048)
    assert parameters(model) == slow_only_parameters((3, 4, 6, 3), 400) == 23_508_032 + 2 * slices + 2049 * 400
    assert parameters(model) == 32_454_096
    with FlopCounterMode(display=False) as counter:
        model.eval()(torch.empty(1, 3, 8, 256, 256, device="meta"))
    assert round(counter.get_total_flops() / 2e9, 2) == 54.52  # multiply-adds, as SlowFast counts them


def test_the_deeper_baseline_has_the_expected_parameters() -> None:
    with torch.device("meta"):
        model = VideoClassifier(SlowOnly("slow_only_r101"), 400, settings(None))
    assert parameters(model) == slow_only_parameters((3, 4, 23, 3), 400)


@pytest.mark.parametrize("variant", VARIANTS)
def test_five_blocks_are_in_place_with_their_parameters(variant: str) -> None:
    model = build_r50(variant)
    blocks = {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}
    numbers = {"layer2": (1, 3), "layer3": (1, 3, 5)}
    assert list(blocks) == [f"backbone.{stage}.{n}.non_local" for stage in numbers for n in numbers[stage]]
    assert [(block.channels, block.dims) for block in blocks.values()] == [(512, 3)] * 2 + [(1024, 3)] * 3
    added = 2 * block_parameters(variant, 512) + 3 * block_parameters(variant, 1024)
    assert parameters(model) - parameters(build_r50(None)) == added


def test_blocks_follow_every_second_residual_block_at_any_depth() -> None:
    with torch.device("meta"):
        deep = SlowOnly("slow_only_r101")
        odd = SlowOnly("slow_only_tiny", layers=(4, 1, 3, 4))
    assert places(deep) == ["layer2.1", "layer2.3", *(f"layer3.{n}" for n in range(1, 23, 2))]
    assert places(odd) == ["layer3.1"]
    assert places(odd, {"layer4": (0, 3), "layer1": [2]}) == ["layer4.0", "layer4.3", "layer1.2"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_zero_gated_blocks_keep_every_bit_and_the_baselines_weights_load(variant: str) -> None:
    torch.manual_seed(0)
    plain, gated = tiny(None).eval(), tiny(variant, gate="norm").eval()
    result = gated.load_state_dict(plain.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert result.missing_keys
    assert all("non_local" in name for name in result.missing_keys)
    clips = torch.randn(2, 3, 4, 32, 32)
    with torch.no_grad():
        assert torch.equal(gated(clips), plain(clips))
        for block in (module for module in gated.modules() if isinstance(module, NonLocalBlock)):
            nn.init.ones_(block.norm.weight)
        assert not torch.equal(gated(clips), plain(clips))


def test_a_block_follows_the_last_activation_of_its_residual_block() -> None:
    torch.manual_seed(0)
    model = tiny("gc").eval()
    block = model.get_submodule("backbone.layer2.1.non_local")
    seen = []
    block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    with torch.no_grad():
        model(torch.randn(1, 3, 2, 32, 32))
    assert seen[0].shape == (1, 64, 2, 4, 4)
    assert seen[0].min() == 0 < seen[0].max()


def test_logits_are_a_linear_map_of_the_mean_over_frames_and_positions() -> None:
    torch.manual_seed(0)
    model = tiny(None).eval()
    clips = torch.randn(2, 3, 3, 64, 32)
    with torch.no_grad():
        features = model.backbone(clips)[-1]  # (2, 256, 3, 2, 1)
        means = features.flatten(2).sum(-1) / 6
        torch.testing.assert_close(model(clips), means @ model.classifier.weight.T + model.classifier.bias)


def test_features_are_dropped_in_training_only() -> None:
    torch.manual_seed(0)
    model, seen = tiny(None, dropout=0.25), []
    model.backbone.get_submodule("layer4.0").relu = nn.Sigmoid()  # otherwise features are zero without dropout
    model.classifier.register_forward_pre_hook(lambda _, inputs: seen.append((inputs[0] == 0).float().mean().item()))
    clips = torch.randn(8, 3, 2, 32, 32)
    with torch.no_grad():
        model.train()(clips)
        model.eval()(clips)
    assert 0.2 < seen[0] < 0.3
    assert seen[1] == 0


def test_the_classifier_starts_small() -> None:
    torch.manual_seed(0)
    classifier = VideoClassifier(SlowOnly("slow_only_tiny"), 400, settings(None)).classifier
    assert 0.0095 < classifier.weight.std() < 0.0105
    assert not classifier.bias.any()


QUERIES = 8 * 28 * 28  # queries of the blocks in layer2


@pytest.mark.parametrize(
    ("pool", "largest"),
    [
        (1, 64 * 8 * 112 * 112),  # output of the stem: the attention is never materialised
        (2, QUERIES * QUERIES // 4),  # the attention, small enough to be kept with fewer keys
    ],
)
def test_the_largest_tensor_in_training_at_the_papers_size(pool: int, largest: int) -> None:
    model = build_r50("dnl", pool=pool).train()
    clip = torch.empty(1, 3, 8, 224, 224, device="meta")
    recorder = LargestTensor()
    recorder.inside.clear()  # the tests of the block cover the operator's rows
    with recorder:
        model(clip).sum().backward()
    assert {"dnlnet.attend.default", "dnlnet.attend_backward.default"} <= recorder.operators
    assert recorder.elements == largest <= blocked.MAX_LOGITS < QUERIES * QUERIES


def test_keys_and_values_are_pooled_in_space_but_not_in_time() -> None:
    block = tiny("dnl", pool=2).get_submodule("backbone.layer2.1.non_local")
    assert block.terms(torch.randn(1, 64, 3, 6, 4)).maps([(2, 5, 3)]).combined.shape[2:] == (3, 3, 2)


@pytest.mark.parametrize("variant", ["nl", "dnl", "gc"])
def test_channels_last_memory_gives_the_same_logits_and_gradients(variant: str) -> None:
    torch.manual_seed(0)
    model = tiny(variant, dropout=0.0).double()
    clips = torch.randn(2, 3, 4, 64, 64, dtype=torch.float64)
    results = []
    for memory in (torch.contiguous_format, torch.channels_last_3d):
        model.to(memory_format=memory).zero_grad()
        logits = model.train()(clips.contiguous(memory_format=memory))
        logits.square().sum().backward()
        results.append((logits.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    (expected, gradients), (found, other_gradients) = results
    torch.testing.assert_close(found, expected)
    for x, y in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-9)


def test_a_block_keeps_the_memory_layout() -> None:
    block = tiny("dnl").get_submodule("backbone.layer2.1.non_local")
    x = torch.randn(2, 64, 4, 6, 5).contiguous(memory_format=torch.channels_last_3d)
    assert block(x).is_contiguous(memory_format=torch.channels_last_3d)


def test_every_parameter_is_trained() -> None:
    torch.manual_seed(0)
    model = tiny("dnl").train()
    nn.functional.cross_entropy(model(torch.randn(2, 3, 4, 64, 64)), torch.tensor([0, 3])).backward()
    blocks = [module for module in model.modules() if isinstance(module, NonLocalBlock)]
    assert len(blocks) == 2
    # Whitening cancels the biases of query and key; softmax cancels that of the saliency.
    unused = {bias for block in blocks for bias in (block.query.bias, block.key.bias, block.saliency.bias)}
    for name, parameter in model.named_parameters():
        assert parameter in unused or parameter.grad.abs().max() > 0, name


def test_invalid_networks_are_refused() -> None:
    with torch.device("meta"):
        for number in (2, -1):
            with pytest.raises(ValueError, match=rf"layer2 .*{number}.* 0\.\.1"):
                places(SlowOnly("slow_only_tiny"), {"layer2": (0, number)})
        with pytest.raises(ValueError, match=r"'res3'.*layer1, layer2, layer3, layer4"):
            tiny(placement={"res3": (1,)})
        with pytest.raises(ValueError, match="placement="):
            VideoClassifier(SlowOnly("slow_only_tiny", layers=(1, 1, 1, 1)), 4, settings("dnl"))
        with pytest.raises(ValueError, match="got 0"):
            VideoClassifier(SlowOnly("slow_only_tiny"), 0, settings("dnl"))
        with pytest.raises(ValueError, match="'dln'"):
            tiny("dln")
