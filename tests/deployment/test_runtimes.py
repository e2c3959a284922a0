"""Networks in other runtimes equal PyTorch for images of every size."""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dnlnet.backbones import BACKBONES, Backbone, SlowOnly
from dnlnet.backbones.fold import first_tensor, fold_batch_norms
from dnlnet.backbones.rows import BackboneRow
from dnlnet.deployment import runtimes
from dnlnet.deployment.runtimes import InRuntime, require_backend
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.network import Segmentor
from dnlnet.segmentation.tiny import TinySegmentor
from dnlnet.video.network import VideoClassifier
from dnlnet.video.schema import VideoClassifierModel

OPENVINO = pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
IMAGES = ((1, 5, 5), (1, 64, 96), (3, 33, 47), (1, 129, 200))
VIDEO = VideoClassifierModel(variant="dnl", preset="paper")
CLIPS = ((1, 3, 32, 32), (5, 3, 64, 48))


@pytest.fixture(autouse=True)
def small_resnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a ResNet with few layers, because the time to export a network grows with their number."""
    options = {"layers": (1, 1, 1, 2), "channels": (8, 16, 24, 32)}
    monkeypatch.setitem(BACKBONES, "small", BackboneRow("resnet18", (8, 32), r"layer\d\.\d+", options))


def frozen() -> FrozenSegmentor:
    backbone = Backbone("small", 32)
    return FrozenSegmentor(backbone, 4, stages=(1, 2, 3), width=16, reduce=8, subpixels=2)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "tiny": (lambda: TinySegmentor(4, width=8), (), IMAGES),
    "frozen": (frozen, (), IMAGES),
    "segmentor": (lambda: Segmentor(Backbone("small", 8), 4, width=16), (), IMAGES),
    "pooled": (lambda: Segmentor(Backbone("small", 8), 4, "nl", width=16, pool=2), (), IMAGES[1:]),
    "video": (lambda: VideoClassifier(SlowOnly("slow_only_tiny"), 4, VIDEO), (3,), CLIPS),
}


def randomise(network: nn.Module) -> nn.Module:
    """Give every part an effect, including gates and norms that start at zero."""
    for name, parameter in network.named_parameters():
        if name.endswith("weight") and parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1)
        if "gamma" in name:
            nn.init.constant_(parameter, 0.7)
    return network.eval()


CASES = [
    *((kind, "onnxruntime") for kind in ("frozen", "pooled", "video")),
    *(pytest.param(kind, "openvino", marks=OPENVINO) for kind in ("tiny", "segmentor")),
]


@pytest.mark.parametrize(("kind", "runtime"), CASES)
@torch.inference_mode()
def test_a_network_computes_the_same_in_another_runtime(kind: str, runtime: str) -> None:
    torch.manual_seed(0)
    build, frames, shapes = NETWORKS[kind]
    network = randomise(build())
    other = InRuntime(fold_batch_norms(network, torch.randn(1, 3, *frames, 64, 64)), runtime, frames)  # as in `load`
    for batch, *lengths in shapes:
        x = torch.randn(batch, 3, *lengths)
        expected = first_tensor(network(x))
        torch.testing.assert_close(other(x), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


@OPENVINO
def test_signals_work_after_openvino_networks_are_deleted(tmp_path: Path) -> None:
    """Run in a separate process, which the signal used to end."""
    runtimes.write_network(nn.Conv2d(3, 4, 3), tmp_path / "a.onnx", torch.rand(1, 3, 8, 8))
    script = f"""
import signal
from pathlib import Path
from dnlnet.deployment.runtimes import open_network
first, second = (open_network(Path({str(tmp_path)!r}) / "a.onnx", "openvino", 1) for _ in range(2))
del first
del second
signal.signal(signal.SIGUSR1, lambda *_: print("received"))
signal.raise_signal(signal.SIGUSR1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "received\n"), done.stderr


def test_an_image_may_have_any_memory_layout() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    x = torch.rand(1, 20, 30, 3).permute(0, 3, 1, 2)
    with torch.no_grad():
        torch.testing.assert_close(InRuntime(network, "onnxruntime")(x), network(x), rtol=0, atol=1e-6)


def test_a_runtime_that_differs_from_the_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()

    def wrong(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(x) * 1.01

    monkeypatch.setattr(runtimes, "open_network", lambda *_: wrong)
    with pytest.raises(ValueError, match=r"onnxruntime .*0\.01 .*torch"):
        InRuntime(network, "onnxruntime")


@pytest.mark.parametrize(
    ("backend", "missing", "extra"),
    [
        ("onnxruntime", "onnxruntime", "onnx"),
        ("onnxruntime", "onnxscript", "onnx"),
        ("openvino", "openvino", "onnx,bench"),
        ("openvino", "onnx", "onnx,bench"),
    ],
)
def test_missing_packages_are_named_with_their_extra(
    backend: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.errors.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(ModuleNotFoundError, match=rf'^{missing} .*pip install "dnlnet\[{extra}\]"'):
        require_backend(backend)
    require_backend("torch")
