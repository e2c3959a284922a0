"""Run a trained model with a term taken out of its attention: section 3.2's question, asked without retraining."""

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
from dnlnet.lens.trace.capture import blocks_of, find_heads, require_eager
from dnlnet.lens.trace.steps import Seen
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
    """Inside of the `with` block, the model runs with a term taken out of its attention.

    By Eq. 5, softmax(q_i.k_j) is the softmax of a pairwise term (q_i - mean q).k_j and a unary term (mean q).k_j, so
    other queries take a term out, and nothing else of the model changes:

    - `unary` out: q_i - mean q, so that no key is preferred by all queries;
    - `pairwise` out: mean q for all, so that all queries attend to the same;
    - `both` out: 0, which is the plain mean of the values, where the logits have no bias.

    The mean is over all queries that attend together, of each image, or of each window, and each head: prefix tokens
    such as class and registers are among them, and so is padding, since the softmax is over those that the model
    sees. (The maps of `capture` are of the picture alone.) Biases and masks stay. Fused kernels stay fused.

    Of a `NonLocalBlock`, which has one head, the term is left out of the sum: `nl` without its unary term is Eq. 6,
    without its pairwise term Eq. 7. A block of which no term remains passes its input on.

    Args:
        model: any network, not compiled.
        term: unary, pairwise or both.
        layers: names of the modules, as `capture` gives them; default: all.
        heads: their numbers, counted from 0; default: all.

    >>> import timm, torch
    >>> vit = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    >>> with ablate(vit, "unary", layers="blocks.1.attn", heads=[0, 2]):
    ...     vit(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 1000])

    To see what the changed model attends to, capture it around: `with capture(vit) as attention, ablate(vit, ...):`.
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

    def change(seen: Seen) -> Tensor | None:
        if any(name in blocks for name, _ in seen.around) or not (chosen is None or seen.name in chosen):
            return None
        changed.add(seen.name)
        return _without(seen, term, numbers, *find_heads(seen, modules))

    with ExitStack() as stack:
        for name in sorted(changed):
            _require_heads(name, numbers or [], 1)
            stack.enter_context(_reduced(blocks[name], term))
        stack.enter_context(watch_attention(model, change))
        yield
    if not changed:
        asked = "" if chosen is None else f" in {', '.join(chosen)}"
        warnings.warn(
            f"nothing was taken out: no attention ran{asked} inside of the `with` block; capture(model) tells the "
            "names of those that do",
            stacklevel=3,
        )


def _names(layers: str | Collection[str] | None, modules: Mapping[str, Any]) -> list[str] | None:
    """The names of layers, each of a module of the model."""
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
                f"{layer}: there is no head {head}; it has {count}, counted from 0; choose layers as well"
            )


def _without(seen: Seen, term: Term, heads: Collection[int] | None, count: int, first: bool) -> Tensor:
    """Queries, shaped like the ones seen, with a term taken out of chosen heads."""
    numbers = seen.head_numbers(count, first)
    chosen = numbers.unique() if heads is None else torch.tensor(sorted(set(heads)))
    _require_heads(seen.name, chosen.tolist(), int(numbers.max()) + 1)
    changed = _WITHOUT[term](seen.query, seen.query.mean(dim=-2, keepdim=True))
    where = torch.isin(numbers, chosen).to(changed.device)
    return torch.where(where[..., None, None], changed, seen.query)


_WITHOUT: Mapping[Term, Callable[[Tensor, Tensor], Tensor]] = {
    "unary": lambda query, mean: query - mean,
    "pairwise": lambda query, mean: mean,
    "both": lambda query, mean: torch.zeros_like(query),
}


@contextmanager
def _reduced(block: NonLocalBlock, term: Term) -> Iterator[None]:
    """A block of which only the other term remains."""
    variant = block.variant
    pairwise = variant.pairwise and term == "unary"
    unary = variant.unary if term == "pairwise" else None
    if not pairwise and unary is None:
        hook = block.register_forward_hook(lambda _, args, output: args[0])
        try:
            yield
        finally:
            hook.remove()
        return
    block.variant = replace(variant, pairwise=pairwise, unary=unary, coupled=False)
    try:
        yield
    finally:
        block.variant = variant
