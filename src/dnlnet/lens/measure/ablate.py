"""Remove a term from a trained model's attention, as in section 3.2 of the paper but without retraining."""

# B batch or windows, H heads, N queries, D width

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.errors import unknown
from dnlnet.lens.trace.attention_call import AttentionCall
from dnlnet.lens.trace.capture import blocks_of, find_heads, require_eager
from dnlnet.lens.trace.watch import watch_attention

Term = Literal["unary", "pairwise", "both"]
TERMS: tuple[Term, ...] = get_args(Term)


@contextmanager
def ablate(
    model: nn.Module,
    term: Term,
    layers: str | Collection[str] | None = None,
    heads: int | Collection[int] | None = None,
) -> Iterator[None]:
    """Remove a term of the model's attention inside the `with` block.

    By Eq. 5, softmax(q_i.k_j) is the softmax of a pairwise term (q_i - mean q).k_j plus a unary term (mean q).k_j.
    Removing a term only changes the queries:

    - without `unary`: q_i - mean q, so no key is preferred by all queries;
    - without `pairwise`: mean q for all, so all queries attend alike;
    - without `both`: 0, which gives the plain mean of the values if the logits have no bias.

    The mean is over all queries that attend together, per image or window and per head. It includes prefix tokens
    such as class and registers, and padding, because the model's softmax does. (The maps of `capture` are over the
    image alone.) Biases and masks stay. Fused kernels stay fused.

    A `NonLocalBlock`, which has one head, leaves the term out of the sum: `nl` without its unary term is Eq. 6,
    without its pairwise term Eq. 7. A block without any term left returns its input.

    Args:
        model: Any network that is not compiled.
        term: `unary`, `pairwise` or `both`.
        layers: Module names, as in `capture`. Default: all.
        heads: Head numbers, from 0. Default: all.

    >>> import timm, torch
    >>> vit = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    >>> with ablate(vit, "unary", layers="blocks.1.attn", heads=[0, 2]):
    ...     vit(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 1000])

    To see what the changed model attends to, use `with capture(vit) as attention, ablate(vit, ...):`.
    """
    if term not in TERMS:
        raise unknown("term", str(term), TERMS)
    require_eager(model)
    modules = dict(model.named_modules())
    chosen = _names(layers, modules)
    numbers = None if heads is None else [heads] if isinstance(heads, int) else list(heads)
    if chosen == [] or numbers == []:
        yield
        return
    blocks = blocks_of(model)
    changed = {name for name in blocks if chosen is None or name in chosen}

    def change(call: AttentionCall) -> Tensor | None:
        if any(name in blocks for name, _ in call.enclosing) or not (chosen is None or call.name in chosen):
            return None
        changed.add(call.name)
        return _without(call, term, numbers, *find_heads(call, modules))

    with ExitStack() as stack:
        for name in sorted(changed):
            _require_heads(name, numbers or [], 1)
            stack.enter_context(_reduced(blocks[name], term))
        stack.enter_context(watch_attention(model, change))
        yield
    if not changed:
        where = "" if chosen is None else f" in {', '.join(chosen)}"
        warnings.warn(
            f"no term was removed: no attention ran{where} inside the `with` block; capture(model) gives the "
            "names of those that run",
            stacklevel=3,
        )


def _names(layers: str | Collection[str] | None, modules: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the layers. Raises unless each names a module of the model."""
    if layers is None:
        return None
    names = [layers] if isinstance(layers, str) else list(layers)
    for name in names:
        if name.partition("#")[0] not in {*modules, "attention"}:
            raise unknown("layer", name, [module for module in modules if module])
    return names


def _require_heads(layer: str, heads: Collection[int], count: int) -> None:
    for head in heads:
        if not 0 <= head < count:
            raise ValueError(
                f"{layer}: there is no head {head}; it has {count}, counted from 0; choose layers that have it"
            )


def _without(call: AttentionCall, term: Term, heads: Collection[int] | None, count: int, first: bool) -> Tensor:
    """Return the queries with a term removed from the chosen heads."""
    numbers = call.head_numbers(count, first)
    chosen = numbers.unique() if heads is None else torch.tensor(sorted(set(heads)))
    _require_heads(call.name, chosen.tolist(), int(numbers.max()) + 1)
    changed = _WITHOUT[term](call.query, call.query.mean(dim=-2, keepdim=True))
    where = torch.isin(numbers, chosen).to(changed.device)
    return torch.where(where[..., None, None], changed, call.query)


_WITHOUT: Mapping[Term, Callable[[Tensor, Tensor], Tensor]] = {
    "unary": lambda query, mean: query - mean,
    "pairwise": lambda query, mean: mean,
    "both": lambda query, mean: torch.zeros_like(query),
}


@contextmanager
def _reduced(block: NonLocalBlock, term: Term) -> Iterator[None]:
    """Reduce a block to its other term."""
    variant = block.variant
    pairwise = variant.pairwise and term == "unary"
    unary = variant.unary if term == "pairwise" else None
    if not pairwise and unary is None:
        with block.register_forward_hook(lambda _, args, output: args[0]):
            yield
        return
    block.variant = replace(variant, pairwise=pairwise, unary=unary, coupled=False)
    try:
        yield
    finally:
        block.variant = variant
