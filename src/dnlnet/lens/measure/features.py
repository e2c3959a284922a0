"""Patch features: the last image tokens of a transformer, on their grid."""

# B batch, N tokens, C channels, h x w patches

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.layout import Layout
from dnlnet.lens.trace.recorded import RecordedAttention


@dataclass(frozen=True)
class FeatureSource:
    """Module whose output holds the patch features.

    Args:
        module: Name of the module.
        layout: Layout of its tokens.
    """

    module: str
    layout: Layout

    def features(self, output: Tensor) -> Tensor:
        """Return the features (h, w, C) of the first image in single precision, without prefix tokens."""
        height, width = self.layout.size
        if output.dim() == 3:
            found = output[0, self.layout.prefix :].reshape(height, width, -1)
        else:
            found = output[0] if output.shape[1:3] == self.layout.size else output[0].permute(1, 2, 0)
        return found.float()


def find_features(network: nn.Module, run: Callable[[], object]) -> tuple[FeatureSource, Captured]:
    """Find a network's last patch features in a run on one image, and capture its attention.

    They are the last output of any module with one token per position of the last attention over the image: the
    output of the last norm for a ViT, the last map for Swin.
    """
    shapes: dict[str, torch.Size] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, output: Any) -> None:
            shapes.pop(name, None)  # the last run of a module counts
            if isinstance(output, Tensor):
                shapes[name] = output.shape

        return hook

    with ExitStack() as hooks, warnings.catch_warnings():
        for name, module in network.named_modules():
            hooks.enter_context(module.register_forward_hook(note(name)))
        warnings.filterwarnings("ignore", message="no attention was seen")
        with capture(network) as attention:
            run()
    layers = [layer for layer in attention.values() if isinstance(layer, RecordedAttention)]
    placed = [layer.require_layout() for layer in layers if layer.has_maps]
    if not placed:
        unplaced = (layer.layout for layer in layers if isinstance(layer.layout, str))
        raise ValueError(
            f"{type(network).__name__} has no patch features: {next(unplaced, 'it has no attention over an image')}"
        )
    layout = placed[-1]
    for name, shape in reversed(shapes.items()):
        tokens = len(shape) == 3 and shape[1] == layout.prefix + prod(layout.size)
        if tokens or (len(shape) == 4 and layout.size in (tuple(shape[1:3]), tuple(shape[2:]))):
            return FeatureSource(name, layout), attention
    raise ValueError(f"{type(network).__name__} has no patch features: no module has {layout.size} of them")


@contextmanager
def watch_features(network: nn.Module, source: FeatureSource) -> Iterator[Callable[[], Tensor]]:
    """Yield a function that returns the features of the network's last run inside the `with` block."""
    last: list[Tensor] = []

    def keep(_: nn.Module, args: Any, output: Tensor) -> None:
        last[:] = [output.detach()]

    with network.get_submodule(source.module).register_forward_hook(keep):
        yield lambda: source.features(last[0])
