"""What the blocks of a model attend to, recorded while the model runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock, Terms

Watcher = Callable[[str, NonLocalBlock, Tensor], None]


class Captured(dict[str, Terms]):
    """The terms of each block by the block's name, of the last pass; `maps(queries)` of them gives attention maps."""

    def __missing__(self, name: str) -> Terms:
        if not self:
            raise KeyError(
                f"no block has run, so there is nothing of {name!r}: call the model inside `with capture(model)`, "
                "uncompiled, for a compiled model does not tell what happens inside"
            )
        raise KeyError(f"no block {name!r} has run; there are: {', '.join(self)}")


@contextmanager
def capture(model: nn.Module) -> Iterator[Captured]:
    """Record what every `NonLocalBlock` in a model, its own or inserted, attends to while the model runs.

    What is kept are queries and keys, linear in the number of positions; maps are computed of the queries that are
    asked for. Outside of the `with` the model is as it was: nothing is slower, nothing is kept. A block that runs
    several times leaves its last.

    >>> from dnlnet.attention import insert
    >>> net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU())
    >>> _ = insert(net, {"1": "dnl"})
    >>> with capture(net) as blocks:
    ...     _ = net(torch.rand(1, 3, 31, 41))
    >>> blocks["1.non_local"].maps([(7, 10)]).pairwise.shape
    torch.Size([1, 1, 15, 20])
    """
    captured = Captured()

    def record(name: str, block: NonLocalBlock, x: Tensor) -> None:
        captured[name] = block.terms(x)

    with watching(model, record):
        yield captured


@contextmanager
def watching(model: nn.Module, seen: Watcher) -> Iterator[None]:
    """Call `seen(name, block, input)` whenever a block of the model runs."""
    blocks = find_blocks(model)
    hooks = [block.register_forward_pre_hook(_telling(name, seen)) for name, block in blocks.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def find_blocks(model: nn.Module) -> dict[str, NonLocalBlock]:
    """Every block of a model by its name; an error if there is none."""
    blocks = {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}
    if not blocks:
        raise ValueError(
            f"{type(model).__name__} has no non-local block to look into; put one in with dnlnet.insert, or choose "
            "a model that has one"
        )
    return blocks


def _telling(name: str, seen: Watcher) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def tell(block: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(block, NonLocalBlock)
        with torch.no_grad():
            seen(name, block, inputs[0].detach())

    return tell
