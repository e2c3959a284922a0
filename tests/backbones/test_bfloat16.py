"""Networks in bfloat16: same outputs up to its rounding, in float32, and refused where they would be slow."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dnlnet.backbones import Backbone, SlowOnly
from dnlnet.backbones.bfloat16 import InBfloat16, bfloat16_problem, choose_precision
from dnlnet.backbones.fold import first_tensor
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.network import Segmentor, SegmentorOutput
from dnlnet.segmentation.tiny import TinySegmentor
from dnlnet.video.network import VideoClassifier
from dnlnet.video.schema import VideoClassifierModel

VIDEO = VideoClassifierModel(variant="dnl", preset="paper")
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "tiny": (lambda: TinySegmentor(4, width=8), (33, 47)),
    "frozen": (lambda: FrozenSegmentor(Backbone("mobilenetv2", 32), 4, width=16, subpixels=2), (65, 80)),
    "segmentor": (lambda: Segmentor(Backbone("resnet18", 16), 4, width=16), (65, 80)),
    "video": (lambda: VideoClassifier(SlowOnly("slow_only_tiny"), 4, VIDEO), (3, 32, 48)),
}


@pytest.mark.parametrize("kind", NETWORKS)
@torch.inference_mode()
def test_a_network_in_bfloat16_has_nearly_the_same_outputs_in_float32(kind: str) -> None:
    torch.manual_seed(0)
    build, size = NETWORKS[kind]
    network, x = build().eval(), torch.randn(2, 3, *size)
    expected = network(x)
    found = InBfloat16(network)(x)
    assert type(found) is type(expected)
    difference = (first_tensor(found) - first_tensor(expected)).norm() / first_tensor(expected).norm()
    assert 0 < difference < 0.05
    assert first_tensor(found).dtype == torch.float32
    assert torch.equal(first_tensor(network(x)), first_tensor(expected))  # it was copied
    if isinstance(expected, SegmentorOutput):
        assert found.auxiliary is None


def test_bfloat16_is_refused_where_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for fast in (True, False):
        monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda fast=fast: fast)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, fast=fast: fast)
        for device, name in (("cpu", "CPU"), ("cuda:1", "GPU")):
            choose_precision("float32", device)
            if fast:
                choose_precision("bfloat16", device)
                continue
            with pytest.raises(ValueError, match=f"this {name} has no bfloat16 instructions, .* use float32"):
                choose_precision("bfloat16", device)
    assert bfloat16_problem("mps") is None
