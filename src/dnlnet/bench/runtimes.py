"""A network in the runtimes that others would choose on a processor, for comparison."""

import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor
from dnlnet.deployed import Attention, Axes, Deployed, portable
from dnlnet.deployed.programs import read_onnx, write_onnx

Run = Callable[[Tensor], Tensor]


class FirstOutput(Deployed):
    """A network as it is, with the first of its outputs alone."""

    outputs = ("output",)

    def __init__(self, network: nn.Module, dims: int) -> None:
        super().__init__()
        self.network = network
        lengths = ("height", "width") if dims == 2 else ("time", "height", "width")
        self.takes = Axes("input", ("batch", 3, *lengths))
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """What the network puts out first."""
        return (first_tensor(self.network(x)),)


def other_runtimes(network: nn.Module, image: Tensor, threads: int) -> Iterator[tuple[str, Run]]:
    """The network in ONNX Runtime and in OpenVINO, those of them that are installed, in float32."""
    installed = [name for name in _RUNTIMES if find_spec(name)]
    if not installed or not all(map(find_spec, ("onnx", "onnxscript"))):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        write_network(network, path, image)
        for name in installed:
            yield name, _RUNTIMES[name](path, threads)


def write_network(
    network: nn.Module, path: Path, image: Tensor, *, attention: Attention = "blocked", free: tuple[str, ...] = ()
) -> None:
    """Write the network as an ONNX file that takes images, or clips, like this one."""
    write_onnx(FirstOutput(portable(network, attention), image.dim() - 2), path, image, free, {})


def _onnxruntime(path: Path, threads: int) -> Run:
    run = read_onnx(path, threads)
    return lambda x: torch.from_numpy(run(x)["output"])


def _openvino(path: Path, threads: int) -> Run:
    openvino = import_module("openvino")
    # By default it computes in bfloat16 where the processor can.
    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(path, "CPU", settings)
    return lambda x: torch.from_numpy(model(x.numpy())[0].copy())


_RUNTIMES = {"onnxruntime": _onnxruntime, "openvino": _openvino}
