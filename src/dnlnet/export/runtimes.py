"""Networks in runtimes other than PyTorch, on the processor, in float32."""

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor
from dnlnet.errors import require_package, unknown
from dnlnet.export.network import FREE_AXES, Axes, Exportable
from dnlnet.export.portable_attention import portable
from dnlnet.export.programs import TOLERANCE, largest_difference, read_onnx, write_onnx

Run = Callable[[Tensor], Tensor]
_TRACED, _TRIED = (65, 67), (96, 80)  # heights and widths


class FirstOutput(Exportable):
    """A network as it is, with the first of its outputs alone."""

    outputs = ("output",)

    def __init__(self, network: nn.Module, dims: int) -> None:
        super().__init__(_TRACED)
        self.network = network
        lengths = ("height", "width") if dims == 2 else ("time", "height", "width")
        self.takes = Axes("input", ("batch", 3, *lengths))
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """What the network puts out first."""
        return (first_tensor(self.network(x)),)


class InRuntime(nn.Module):
    """The first output of a network, for inputs of any batch, height and width, computed in another runtime.

    It is compared with the network before it is used.

    Args:
        network: takes normalised images, or clips, in evaluation mode.
        runtime: onnxruntime or openvino, which must be installed: see `require_backend`.
        frames: of a clip; none for images.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU())
    >>> x = torch.rand(1, 3, 20, 30)
    >>> bool(torch.allclose(InRuntime(network, "onnxruntime")(x), network(x), atol=1e-6))
    True
    """

    def __init__(self, network: nn.Module, runtime: str, frames: Sequence[int] = ()) -> None:
        super().__init__()
        tried = torch.randn(1, 3, *frames, *_TRIED)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            write_network(network, path, tried, free=True)
            self.run = open_network(path, runtime, torch.get_num_threads())
        with torch.no_grad():
            device = next(network.parameters()).device
            expected, found = first_tensor(network(tried.to(device))).cpu(), self.run(tried)
        (difference,) = largest_difference({"output": expected.numpy()}, {"output": found.numpy()}).values()
        if not difference <= TOLERANCE:
            raise ValueError(
                f"{runtime} computes something else than the network: a difference of {difference:.2g} of the "
                f"largest value, more than {TOLERANCE:g}; use torch"
            )

    def forward(self, x: Tensor) -> Tensor:
        """What the network puts out first."""
        return self.run(x)


def write_network(network: nn.Module, path: Path, image: Tensor, *, free: bool = False) -> None:
    """Write the network as an ONNX file that takes images, or clips, like this one, or of other sizes too."""
    if free:  # A batch of one would be taken for a batch that is always one.
        image = torch.randn(2, *image.shape[1:-2], *_TRACED)
    exportable = FirstOutput(portable(network), image.dim() - 2)
    write_onnx(exportable, path, image, FREE_AXES if free else (), {})


def open_network(path: Path, runtime: str, threads: int) -> Run:
    """What a file of `write_network` computes in a runtime; the file may go afterwards."""
    return _RUNTIMES[runtime][1](path, threads)


def require_backend(backend: str) -> None:
    """An error if there is no such backend, torch or a runtime, or if it is not installed.

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
    """One for the whole process, and to its end.

    Each has a stack for signals, and puts the one that it found back when it goes. Of two, the second one would put
    back that of the first, which is gone by then, and the next signal would end the process.
    """
    return import_module("openvino").Core()


def _openvino(path: Path, threads: int) -> Run:
    # By default it computes in bfloat16 where the processor can.
    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = _openvino_core().compile_model(path, "CPU", settings)
    return lambda x: torch.from_numpy(model(x.numpy())[0].copy())


_RUNTIMES: dict[str, tuple[str, Callable[[Path, int], Run]]] = {
    "onnxruntime": ("onnx", _onnxruntime),
    "openvino": ("onnx,bench", _openvino),
}
