"""Record the attention of a model while it runs: `NonLocalBlock`s and all other dot-product attention."""

import warnings
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock, Terms
from dnlnet.lens.trace.attention_call import AttentionCall
from dnlnet.lens.trace.layout import Layout, find_layout, is_instance_of
from dnlnet.lens.trace.recorded import RecordedAttention, layer_number
from dnlnet.lens.trace.watch import watch_attention
from dnlnet.lens.trace.windows import HEADS_FIRST, find_windows

if TYPE_CHECKING:
    from dnlnet.lens.measure.profile import Profile


class Captured(dict[str, Terms | RecordedAttention]):
    """Last run of each attention, by module name, or by number in running order. Each has `maps(queries)`."""

    def __getitem__(self, name: str | int) -> Terms | RecordedAttention:
        return super().__getitem__(name if isinstance(name, str) else self._name(name))

    def _name(self, number: int) -> str:
        """Return the name of an attention by the number that `--layers` gives it, which skips our blocks."""
        names = [name for name, layer in self.items() if isinstance(layer, RecordedAttention)] or list(self)
        return names[layer_number(number, names)]

    def __missing__(self, name: str) -> Terms | RecordedAttention:
        if not self:
            raise KeyError(
                f"no attention has run, so {name!r} was not captured: call the model inside `with capture(model)`; "
                "attention of another kind than softmax(query.key) is not seen"
            )
        raise KeyError(f"no attention {name!r} has run; captured: {', '.join(self)}")

    def profile(self) -> "Profile":
        """Measure each head: unary share, dependence on the query, effective positions, sinks."""
        from dnlnet.lens.measure.profile import profile

        return profile(self)


@contextmanager
def capture(model: nn.Module, layers: Collection[str] | None = None) -> Iterator[Captured]:
    """Record every dot-product attention of a model while it runs.

    This covers `NonLocalBlock`s, built in or inserted; PyTorch's `scaled_dot_product_attention` and
    `nn.MultiheadAttention`; and attention written out as a product, a softmax and the steps between them.

    Only queries and keys are kept, linear in the number of tokens; maps are computed for the queries you request. The
    model's output stays the same to the bit, and the model is unchanged outside the `with` block. If an attention
    runs several times, the last run is kept.

    Args:
        model: Any network that is not compiled.
        layers: Names of the modules to record. Default: all.

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
    >>> attention["blocks.1.attn"].maps([(3, 0)]).pairwise.shape  # three heads on a grid of 4 x 4 patches
    torch.Size([3, 1, 4, 4])
    >>> attention[1] is attention["blocks.1.attn"]  # the number that `--layers` takes
    True
    """
    require_eager(model)
    captured = Captured()
    modules = dict(model.named_modules())
    blocks = blocks_of(model)
    chosen = {name: block for name, block in blocks.items() if layers is None or name in layers}

    def record(call: AttentionCall) -> None:
        ours = any(name in blocks for name, _ in call.enclosing)
        if not ours and (layers is None or call.name in layers):
            captured[call.name] = _record(call, modules)

    with _record_blocks(chosen, captured), watch_attention(model, record):
        yield captured
    _warn(captured, model, layers)


def _record(call: AttentionCall, modules: Mapping[str, nn.Module]) -> RecordedAttention:
    """Find the layout, and copy queries and keys because the model may change them later."""
    split = call.split_heads(*find_heads(call, modules))
    query, key = (x.detach().clone(memory_format=torch.contiguous_format) for x in (split.query, split.key))
    return RecordedAttention(replace(split, query=query, key=key), _layout(call, query, key, modules))


def _layout(call: AttentionCall, query: Tensor, key: Tensor, modules: Mapping[str, nn.Module]) -> Layout | str:
    if call.enclosing and _is_between_channels(query, call.enclosing[-1][1]):
        return "this attention is between channels, not positions, so it has no maps of an image"
    chain = [(modules[name], shape) for name, shape in reversed(call.enclosing)]
    given = call.enclosing[0][1] if call.enclosing else ()
    image = (given[2], given[3]) if len(given) == 4 else None
    groups = len(query) // given[0] if image and given[0] else 1
    tokens = (query.shape[-2], key.shape[-2])
    return find_windows(chain, tokens, image, groups) or find_layout(modules[""], tokens, image, groups)


def _is_between_channels(query: Tensor, given: Sequence[int]) -> bool:
    """Return whether the tokens (B, H, N, D) are the channels of the module's input (B, D, H N)."""
    _, heads, count, width = query.shape
    return len(given) == 3 and tuple(given[1:]) == (width, heads * count) and count != width


def find_heads(call: AttentionCall, modules: Mapping[str, nn.Module]) -> tuple[int, bool]:
    """Return the number of heads that the innermost module declares (else 1), and whether they precede windows."""
    enclosing = [modules[name] for name, _ in reversed(call.enclosing)]
    declared = (getattr(module, attribute, None) for module in enclosing for attribute in _HEADS)
    first = any(is_instance_of(module, kind) for module in enclosing for kind in HEADS_FIRST)
    return next((value for value in declared if isinstance(value, int) and value), 1), first


_HEADS = ("num_heads", "num_attention_heads", "heads", "n_heads", "nhead")


def require_eager(model: nn.Module) -> None:
    """Raise if the model is compiled, scripted or traced: it then runs without its modules."""
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        raise ValueError(
            "a compiled model hides its attention; give the model before compilation, model._orig_mod, which has the "
            "same weights"
        )
    if any(module._compiled_call_impl is not None for module in model.modules()):
        raise ValueError("a compiled model hides its attention; give a model without a call of compile()")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError("a scripted or traced model hides its attention; give the original model")


def _warn(captured: Captured, model: nn.Module, layers: Collection[str] | None) -> None:
    if not captured:
        where = "" if layers is None else f" in {', '.join(layers)}"
        warnings.warn(
            f"no attention was seen{where}: {type(model).__name__} did not run inside the `with` block, or has no "
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
    """Record every `NonLocalBlock` of a model and nothing else. Raises if there is none."""
    captured: dict[str, Terms] = {}
    with _record_blocks(find_blocks(model), captured):
        yield captured


@contextmanager
def _record_blocks(blocks: Mapping[str, NonLocalBlock], captured: MutableMapping[str, Any]) -> Iterator[None]:
    """Put the terms of each block into `captured` whenever it runs."""

    @torch.no_grad()
    def record(name: str, block: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(block, NonLocalBlock)
        captured[name] = block.terms(inputs[0].detach())

    with ExitStack() as hooks:
        for name, block in blocks.items():
            hooks.enter_context(block.register_forward_pre_hook(partial(record, name)))
        yield


def blocks_of(model: nn.Module) -> dict[str, NonLocalBlock]:
    """Return all blocks of a model by name, possibly none.

    >>> blocks_of(nn.Sequential(nn.ReLU(), NonLocalBlock(8))).keys()
    dict_keys(['1'])
    """
    return {name: module for name, module in model.named_modules() if isinstance(module, NonLocalBlock)}


def find_blocks(model: nn.Module) -> dict[str, NonLocalBlock]:
    """Return all blocks of a model by name. Raises if there is none."""
    blocks = blocks_of(model)
    if not blocks:
        raise ValueError(
            f"{type(model).__name__} has no non-local block; add one with dnlnet.insert, or choose a model that has "
            "one"
        )
    return blocks
