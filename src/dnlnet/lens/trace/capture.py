"""Record what a model attends to while it runs: our blocks, and every other dot-product attention."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock, Terms
from dnlnet.lens.trace.layout import HEADS_FIRST, find_layout, is_a
from dnlnet.lens.trace.recorded import Recorded
from dnlnet.lens.trace.steps import Seen
from dnlnet.lens.trace.watch import watch_attention

if TYPE_CHECKING:
    from dnlnet.lens.measure.profile import Profile

Callback = Callable[[str, NonLocalBlock, Tensor], None]


class Captured(dict[str, Terms | Recorded]):
    """What was seen in the last run of each block or attention, by its name; `maps(queries)` gives attention maps."""

    def __missing__(self, name: str) -> Terms | Recorded:
        if not self:
            raise KeyError(
                f"no attention has run, so {name!r} was not captured: call the model inside `with capture(model)`; "
                "attention of another kind than softmax(query.key) is not seen"
            )
        raise KeyError(f"no attention {name!r} has run; captured: {', '.join(self)}")

    def profile(self) -> "Profile":
        """What every head does, in numbers: unary share, dependence on the query, effective positions, sinks."""
        from dnlnet.lens.measure.profile import profile

        return profile(self)


@contextmanager
def capture(model: nn.Module, layers: Collection[str] | None = None) -> Iterator[Captured]:
    """Record every dot-product attention of a model while it runs: our blocks, and those of any transformer.

    Seen are `NonLocalBlock`s, built in or inserted; everything that goes through PyTorch's
    `scaled_dot_product_attention`; `nn.MultiheadAttention`; and attention that is written out as a product, a softmax
    and what lies between them. Only queries and keys are kept, linear in the number of tokens; maps are computed for
    the queries you ask for. The model's output is the same to the bit, and outside of the `with` block the model is
    unchanged. Of an attention that runs several times, the last run is kept.

    Args:
        model: any network, not compiled.
        layers: names of the modules to record; default: all.

    >>> from dnlnet.attention import insert
    >>> net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU())
    >>> _ = insert(net, {"1": "dnl"})
    >>> with capture(net) as attention:
    ...     _ = net(torch.rand(1, 3, 31, 41))
    >>> attention["1.non_local"].maps([(7, 10)]).pairwise.shape
    torch.Size([1, 1, 15, 20])

    >>> import timm
    >>> vit = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    >>> with capture(vit) as attention:
    ...     _ = vit(torch.rand(1, 3, 64, 64))
    >>> attention["blocks.1.attn"].maps([(3, 0)]).pairwise.shape  # of three heads, on a grid of 4 x 4 patches
    torch.Size([3, 1, 4, 4])
    """
    require_eager(model)
    captured = Captured()
    modules = dict(model.named_modules())
    blocks = blocks_of(model)

    def record_block(name: str, block: NonLocalBlock, x: Tensor) -> None:
        if layers is None or name in layers:
            captured[name] = block.terms(x)

    def record(seen: Seen) -> None:
        ours = any(name in blocks for name, _ in seen.around)
        if not ours and (layers is None or seen.name in layers):
            captured[seen.name] = _recorded(seen, modules)

    with watch_blocks(blocks, record_block), watch_attention(model, record):
        yield captured
    _warn(captured, model, layers)


def _recorded(seen: Seen, modules: Mapping[str, nn.Module]) -> Recorded:
    """The attention with queries and keys of its own: the model may go on to change them."""
    chain = [(modules[name], shape) for name, shape in reversed(seen.around)]
    found = seen.heads_apart(*find_heads(seen, modules))
    query, key = (x.detach().clone(memory_format=torch.contiguous_format) for x in (found.query, found.key))
    whole = seen.around[0][1] if seen.around else ()
    picture = (whole[2], whole[3]) if len(whole) == 4 else None
    groups = len(query) // whole[0] if picture and whole[0] else 1
    layout = find_layout(modules[""], chain, (query.shape[-2], key.shape[-2]), picture, groups)
    if _between_channels(query, seen.around[-1][1] if seen.around else ()):
        layout = "this attention is between channels, not positions, so that its maps have no place in a picture"
    return Recorded(replace(found, query=query, key=key), layout)


def _between_channels(query: Tensor, given: Sequence[int]) -> bool:
    """Whether the tokens of an attention (B, H, N, D) are the channels of what its module was given, (B, D, H N)."""
    _, heads, count, width = query.shape
    return len(given) == 3 and tuple(given[1:]) == (width, heads * count) and count != width


def find_heads(seen: Seen, modules: Mapping[str, nn.Module]) -> tuple[int, bool]:
    """How many heads the innermost of the modules around an attention says it has, 1 if none does.

    And whether they come before its windows.
    """
    said = (getattr(modules[place], name, None) for place, _ in reversed(seen.around) for name in _HEADS)
    first = any(is_a(modules[place], kind) for place, _ in seen.around for kind in HEADS_FIRST)
    return next((value for value in said if isinstance(value, int) and value), 1), first


_HEADS = ("num_heads", "num_attention_heads", "heads", "n_heads", "nhead")


def require_eager(model: nn.Module) -> None:
    """A compiled model runs without its modules, so that nothing can be seen."""
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        raise ValueError(
            "a compiled model hides its attention; give the one that was compiled, model._orig_mod: it has the same "
            "weights"
        )
    if any(module._compiled_call_impl is not None for module in model.modules()):
        raise ValueError("a compiled model hides its attention; give one on which compile() was not called")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError("a scripted or traced model hides its attention; give the one that it was made of")


def _warn(captured: Captured, model: nn.Module, layers: Collection[str] | None) -> None:
    """What a user should know about a run."""
    if not captured:
        asked = "" if layers is None else f" in {', '.join(layers)}"
        warnings.warn(
            f"no attention was seen{asked}: {type(model).__name__} did not run inside of the `with` block, or has no "
            "softmax(query.key); convolutions, linear and other attentions are not seen",
            stacklevel=4,
        )
    elif model.training and any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        warnings.warn(
            "the model is in training mode: its dropout is not part of the maps; call model.eval() first",
            stacklevel=4,
        )


@contextmanager
def capture_blocks(model: nn.Module) -> Iterator[dict[str, Terms]]:
    """Record what every `NonLocalBlock` of a model attends to, and nothing else; an error if there is none."""
    captured: dict[str, Terms] = {}

    def record(name: str, block: NonLocalBlock, x: Tensor) -> None:
        captured[name] = block.terms(x)

    with watch_blocks(find_blocks(model), record):
        yield captured


@contextmanager
def watch_blocks(blocks: Mapping[str, NonLocalBlock], callback: Callback) -> Iterator[None]:
    """Call `callback(name, block, input)` whenever one of the blocks runs."""
    hooks = [block.register_forward_pre_hook(_make_hook(name, callback)) for name, block in blocks.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def blocks_of(model: nn.Module) -> dict[str, NonLocalBlock]:
    """All blocks of a model by name; it may have none.

    >>> blocks_of(nn.Sequential(nn.ReLU(), NonLocalBlock(8))).keys()
    dict_keys(['1'])
    """
    return {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}


def find_blocks(model: nn.Module) -> dict[str, NonLocalBlock]:
    """All blocks of a model by name; an error if there is none."""
    blocks = blocks_of(model)
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
