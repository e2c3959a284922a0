"""Record what the blocks of a model attend to while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock, Terms

Callback = Callable[[str, NonLocalBlock, Tensor], None]


class Captured(dict[str, Terms]):
    """The terms of each block in its last run, by the block's name; their `maps(queries)` gives attention maps."""

    def __missing__(self, name: str) -> Terms:
        if not self:
            raise KeyError(
                f"no block has run, so {name!r} was not captured: call the model inside `with capture(model)`, and "
                "not compiled, since a compiled model hides its blocks"
            )
        raise KeyError(f"no block {name!r} has run; captured: {', '.join(self)}")


@contextmanager
def capture(model: nn.Module) -> Iterator[Captured]:
    """Record what every `NonLocalBlock` of a model, built in or inserted, attends to while the model runs.

    Only queries and keys are kept, linear in the number of positions; maps are computed for the queries you ask for.
    Outside the `with` block the model is unchanged. For a block that runs several times, the last run is kept.

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

    with watch_blocks(model, record):
        yield captured


@contextmanager
def watch_blocks(model: nn.Module, callback: Callback) -> Iterator[None]:
    """Call `callback(name, block, input)` whenever a block of the model runs."""
    blocks = find_blocks(model)
    hooks = [block.register_forward_pre_hook(_make_hook(name, callback)) for name, block in blocks.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def find_blocks(model: nn.Module) -> dict[str, NonLocalBlock]:
    """All blocks of a model by name; an error if there is none."""
    blocks = {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}
    if not blocks:
        raise ValueError(
            f"{type(model).__name__} has no non-local block; add one with dnlnet.insert, or choose a model that has "
            "one"
        )
    return blocks


def _make_hook(name: str, callback: Callback) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(block: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(block, NonLocalBlock)
        with torch.no_grad():
            callback(name, block, inputs[0].detach())

    return hook
