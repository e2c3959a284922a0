"""Networks that run in ONNX Runtime or OpenVINO, on the CPU in float32."""

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor
from dnlnet.deployment.network import FREE_AXES, Axes, Exportable
from dnlnet.deployment.portable_attention import portable
from dnlnet.deployment.programs import TOLERANCE, largest_difference, read_onnx, write_onnx
from dnlnet.errors import require_package, unknown

Run = Callable[[Tensor], Tensor]
_EXPORTED, _CHECKED = (65, 67), (96, 80)  # heights and widths of the inputs for export and check


class FirstOutput(Exportable):
    """Network with only its first output."""

    outputs = ("output",)

    def __init__(self, network: nn.Module, dims: int) -> None:
        super().__init__(_EXPORTED)
        self.network = network
        lengths = ("height", "width") if dims == 2 else ("time", "height", "width")
        self.takes = Axes("input", ("batch", 3, *lengths))
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Return the network's first output."""
        return (first_tensor(self.network(x)),)


class InRuntime(nn.Module):
    """First output of a network, computed in another runtime for any batch, height and width.

    The constructor compares it with the network's own output.

    Args:
        network: Network in evaluation mode for normalised images or clips.
        runtime: Name of an installed runtime, onnxruntime or openvino (see `require_backend`).
        frames: Number of frames of a clip; empty for images.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU())
    >>> x = torch.rand(1, 3, 20, 30)
    >>> bool(torch.allclose(InRuntime(network, "onnxruntime")(x), network(x), atol=1e-6))
    True
    """

    def __init__(self, network: nn.Module, runtime: str, frames: Sequence[int] = ()) -> None:
        super().__init__()
        example = torch.randn(1, 3, *frames, *_CHECKED)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            write_network(network, path, example, free=True)
            self.run = open_network(path, runtime, torch.get_num_threads())
        with torch.no_grad():
            device = next(network.parameters()).device
            expected, found = first_tensor(network(example.to(device))).cpu(), self.run(example)
        (difference,) = largest_difference({"output": expected.numpy()}, {"output": found.numpy()}).values()
        if not difference <= TOLERANCE:
            raise ValueError(
                f"{runtime} differs from the network by {difference:.2g} of the largest value, more than "
                f"{TOLERANCE:g}; use torch"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's first output."""
        return self.run(x)


def write_network(network: nn.Module, path: Path, image: Tensor, *, free: bool = False) -> None:
    """Write the network as an ONNX file for images or clips of this size, or of any size if `free`."""
    if free:  # an example batch of one would fix the batch at one
        image = torch.randn(2, *image.shape[1:-2], *_EXPORTED)
    exportable = FirstOutput(portable(network), image.dim() - 2)
    write_onnx(exportable, path, image, FREE_AXES if free else (), {})


def open_network(path: Path, runtime: str, threads: int) -> Run:
    """Open a file written by `write_network` in a runtime. The file may be deleted afterwards."""
    return _RUNTIMES[runtime][1](path, threads)


def require_backend(backend: str) -> None:
    """Raise if a backend, torch or a runtime, is unknown or not installed.

    >>> require_backend("openvno")
    Traceback (most recent call last):
    ValueError: unknown backend 'openvno'; did you mean 'openvino'? known: torch, onnxruntime, openvino
    """
    if backend == "torch":
        return
    if backend not in _RUNTIMES:
        raise unknown("backend", backend, ["torch", *_RUNTIMES])
    extra, _ = _RUNTIMES[backend]
    for package in (backend, "onnx", "onnxscript"):
        require_package(package, extra)


def _onnxruntime(path: Path, threads: int) -> Run:
    run = read_onnx(path, threads)
    return lambda x: torch.from_numpy(run(x)["output"])


@cache
def _openvino_core() -> Any:
    """Return the single core of this process, which lives until the process ends.

    Each core installs a signal stack, and restores the previous one when it is deleted. A second core would restore
    the stack of the first after that one is gone, and the next signal would kill the process.
    """
    return import_module("openvino").Core()


def _openvino(path: Path, threads: int) -> Run:
    # The default is bfloat16 on CPUs that support it.
    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = _openvino_core().compile_model(path, "CPU", settings)
    return lambda x: torch.from_numpy(model(x.numpy())[0].copy())


_RUNTIMES: dict[str, tuple[str, Callable[[Path, int], Run]]] = {
    "onnxruntime": ("onnx", _onnxruntime),
    "openvino": ("onnx,bench", _openvino),
}
