"""Features of patches: the last tokens that a transformer makes of a picture, in their places."""

# B batch, N tokens, C channels, h x w patches

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.layout import Layout
from dnlnet.lens.trace.recorded import Recorded


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of patches are found.

    Args:
        module: whose output they are.
        layout: how its tokens lie.
    """

    module: str
    layout: Layout

    def features(self, output: Tensor) -> Tensor:
        """(h, w, C) in single precision, of the first picture: prefix tokens are left out."""
        height, width = self.layout.size
        if output.dim() == 3:
            found = output[0, self.layout.prefix :].reshape(height, width, -1)
        else:
            found = output[0] if output.shape[1:3] == self.layout.size else output[0].permute(1, 2, 0)
        return found.float()


def find_features(network: nn.Module, run: Callable[[], object]) -> tuple[FeatureSource, Captured]:
    """Where a network has its last features of patches, and what it attends to, in a run on one picture.

    They are the last output of any module that has a token for each position of the last attention over a picture:
    of a ViT the output of its last norm, of Swin the last map.
    """
    shapes: dict[str, torch.Size] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, output: Any) -> None:
            shapes.pop(name, None)  # the last run of a module counts
            if isinstance(output, Tensor):
                shapes[name] = output.shape

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in network.named_modules()]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no attention was seen")
            with capture(network) as attention:
                run()
    finally:
        for hook in hooks:
            hook.remove()
    layouts = [layer.layout for layer in attention.values() if isinstance(layer, Recorded)]
    placed = [
        layout for layout in layouts if isinstance(layout, Layout) and len(layout.size) == 2 and prod(layout.size) > 1
    ]
    if not placed:
        why = next((layout for layout in layouts if isinstance(layout, str)), "it has no attention over a picture")
        raise ValueError(f"{type(network).__name__} has no features of patches: {why}")
    layout = placed[-1]
    for name, shape in reversed(shapes.items()):
        tokens = len(shape) == 3 and shape[1] == layout.prefix + prod(layout.size)
        if tokens or (len(shape) == 4 and layout.size in (tuple(shape[1:3]), tuple(shape[2:]))):
            return FeatureSource(name, layout), attention
    raise ValueError(f"{type(network).__name__} has no features of patches: no module has {layout.size} of them")


@contextmanager
def watch_features(network: nn.Module, source: FeatureSource) -> Iterator[Callable[[], Tensor]]:
    """Gives a function to the features of the network's last run inside of the `with` block."""
    last: list[Tensor] = []

    def keep(_: nn.Module, args: Any, output: Tensor) -> None:
        last[:] = [output.detach()]

    hook = network.get_submodule(source.module).register_forward_hook(keep)
    try:
        yield lambda: source.features(last[0])
    finally:
        hook.remove()
