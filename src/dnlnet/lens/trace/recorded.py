"""One recorded attention of any model: its heads, their terms, and their maps; and the choice of layers and heads."""

# B batch, H heads, N queries, M keys, D width, Q chosen queries, S sizes of the key map

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.maps import AttentionMaps, Positions
from dnlnet.attention.terms import Logits
from dnlnet.errors import unknown
from dnlnet.lens.trace.attention_call import AttentionCall, repeat_key_heads, row_blocks
from dnlnet.lens.trace.layout import Layout

HeadChoice = int | Literal["mean", "all"]


@dataclass(frozen=True, repr=False)
class HeadTerms(Terms):
    """Terms of chosen heads, split by Eq. 5. Heads replace the batch; bias and mask act on the combined map only.

    Attributes:
        recorded: Attention of the heads.
        chosen: Pairs (image, head).
        averaged: The maps are means over the heads.
    """

    recorded: "RecordedAttention" = field(kw_only=True)
    chosen: Sequence[tuple[int, int]] = field(kw_only=True)
    averaged: bool = field(kw_only=True)

    @torch.no_grad()
    def maps_of_rows(self, rows: Tensor) -> AttentionMaps:
        """Return the maps of positions given as indices into the flattened query map."""
        maps = super().maps_of_rows(rows)
        return mean_over_heads(maps) if self.averaged else maps

    def _applied(self, term: Logits, values: Tensor) -> Tensor:
        if term is not self.coupled and self.recorded.hidden_keys_of(self.chosen) is None:
            found = super()._applied(term, values)
        else:
            values = values.to(term.key)
            blocks = row_blocks(term.query.shape[1], len(term.key) * len(values))
            found = torch.cat([self._logits(term, rows).softmax(dim=-1) @ values for rows in blocks], dim=1)
        return found.mean(dim=0, keepdim=True) if self.averaged else found

    def _logits(self, term: Logits, rows: Tensor) -> Tensor:
        if term is self.coupled:
            return self.recorded.combined_logits(self.chosen, rows)
        logits = super()._logits(term, rows)
        hidden = self.recorded.hidden_keys_of(self.chosen)
        return logits if hidden is None else logits.masked_fill(hidden[:, None], -torch.inf)


def split_logits(query: Tensor, key: Tensor, mean: Tensor) -> tuple[Logits, Logits, Logits]:
    """Split q.k by Eq. 5 into the pairwise term (q - mean).k and the unary term mean.k. Also return their sum."""
    return Logits(query - mean, key), Logits(mean, key), Logits(query, key)


def mean_over_heads(maps: AttentionMaps) -> AttentionMaps:
    """Average maps over the heads, which replace the batch."""
    pairwise, unary = (
        None if part is None else part.mean(dim=0, keepdim=True) for part in (maps.pairwise, maps.unary)
    )
    return AttentionMaps(pairwise, unary, maps.combined.mean(dim=0, keepdim=True))


@dataclass(frozen=True, repr=False)
class RecordedAttention:
    """One attention of a model. Only queries and keys are kept, linear in the number of tokens.

    Attributes:
        call: (B, H, N, D) queries, (B, H or fewer, M, D) keys, and the steps from their product to the softmax.
        layout: Positions of the tokens, or a sentence that explains why they are unknown.

    The mean query is over the image tokens, without prefix tokens. Maps cover only the image tokens and are
    normalised to sum to 1 there. `weights` returns the model's own attention over all tokens.
    """

    call: AttentionCall
    layout: Layout | str

    def __repr__(self) -> str:
        batch, heads, count, _ = self.call.query.shape
        return f"RecordedAttention({batch} x {heads} heads of {count} tokens)"

    @property
    def has_maps(self) -> bool:
        """True if it has maps of an image. Attention of the class token alone has one query, so none."""
        return not isinstance(self.layout, str) and self.layout.is_image and prod(self.layout.size) > 1

    @property
    def heads(self) -> int:
        """Number of heads."""
        return int(self.call.query.shape[1])

    def weights(self, rows: Tensor | None = None) -> Tensor:
        """Return the model's own attention (B, H, N, M) over all tokens, or (B, H, Q, M) of some rows."""
        with torch.no_grad():
            return self.widened().logits(rows).softmax(dim=-1)

    def terms(self, head: HeadChoice = "mean", image: int = 0) -> Terms:
        """Return the terms of one head, of all heads (replacing the batch), or of their mean, on one image."""
        layout = self.require_layout()
        images = len(self.call.query) // (1 if layout.places is None else len(layout.places))
        if not 0 <= image < images:
            raise ValueError(f"{self.call.name}: there is no image {image}; the batch has {images}, counted from 0")
        if layout.places is not None:
            from dnlnet.lens.trace.window_terms import window_terms

            return window_terms(self, head, image)
        chosen = [(image, number) for number in self.head_numbers(head)]
        query, key = self.query_and_key(chosen)
        return HeadTerms(
            *split_logits(query, key, query.mean(dim=1, keepdim=True)),
            layout.size,
            layout.key_size,
            recorded=self,
            chosen=chosen,
            averaged=head == "mean",
        )

    def maps(self, queries: Positions, head: HeadChoice = "all", image: int = 0) -> AttentionMaps:
        """Return the maps of chosen positions, e.g. [(row, column)]. Heads replace the batch."""
        return self.terms(head, image).maps(queries)

    def head_numbers(self, head: HeadChoice) -> list[int]:
        """Return the numbers of the chosen heads."""
        if isinstance(head, str):
            if head not in ("mean", "all"):
                raise ValueError(f"heads are 'mean', 'all' or a number, not {head!r}")
            return list(range(self.heads))
        if not 0 <= head < self.heads:
            raise ValueError(f"{self.call.name}: there is no head {head}; it has {self.heads}, counted from 0")
        return [head]

    def require_layout(self) -> Layout:
        """Return the token layout. Raises if it is unknown."""
        if isinstance(self.layout, str):
            raise ValueError(f"{self.call.name}: {self.layout}")
        return self.layout

    def laid_out(self, layout: Layout) -> "RecordedAttention":
        """Return the same attention with another token layout."""
        seen = self.call.query.shape[-2], self.call.key.shape[-2]
        if layout.places is not None and layout.places_of_keys is not None:
            declared, what = (layout.places.shape[1], layout.places_of_keys.shape[1]), "its windows have"
        else:
            declared = layout.prefix + prod(layout.size), layout.key_prefix + prod(layout.key_size)
            what = "its prefix tokens and size make"
        if declared != seen:
            raise ValueError(
                f"{self.call.name}: {seen[0]} queries and {seen[1]} keys attend together, which does not fit the "
                f"layout: {what} {declared[0]} and {declared[1]}"
            )
        return replace(self, layout=layout)

    def query_and_key(self, chosen: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Return queries and keys (heads, N, D) of the map's tokens; their product is the logits without bias."""
        layout = self.require_layout()
        query, key = self.scaled_query_and_key()
        query, key = (torch.stack([x[image, head] for image, head in chosen]) for x in (query, key))
        return query[:, layout.prefix :], key[:, layout.key_prefix :]

    def scaled_query_and_key(self) -> tuple[Tensor, Tensor]:
        """Return queries (B, H, N, D), scaled as in the logits, and keys (B, H, M, D), of all tokens."""
        call = self.widened()
        factor = torch.as_tensor(call.factor, dtype=call.query.dtype, device=call.query.device)
        return call.query * factor, repeat_key_heads(call.key, call.query)

    def combined_logits(self, chosen: Sequence[tuple[int, int]], rows: Tensor) -> Tensor:
        """Return the logits (heads, Q, M) of some positions, including bias and mask."""
        layout = self.require_layout()
        logits = self.widened().logits(rows.to(self.call.query.device) + layout.prefix)
        return torch.stack([logits[image, head] for image, head in chosen])[..., layout.key_prefix :]

    def hidden_keys_of(self, chosen: Sequence[tuple[int, int]]) -> Tensor | None:
        """Return (heads, M), True for keys of the map that no query may see; None if there are none."""
        hidden = self.hidden_keys()
        if hidden is None:
            return None
        return torch.stack([hidden[image, head] for image, head in chosen])[:, self.require_layout().key_prefix :]

    def hidden_keys(self) -> Tensor | None:
        """Return (B, H, M), True for keys that no query may see; None if there are none."""
        hidden = self.call.hidden_keys
        if hidden is None:
            return None
        while hidden.dim() < 3:
            hidden = hidden[None]
        return hidden.broadcast_to(*self.call.query.shape[:2], self.call.key.shape[-2])

    def widened(self) -> AttentionCall:
        """Return the call in at least single precision: half-precision logits overflow and lose digits."""
        wide = torch.promote_types(self.call.query.dtype, torch.float32)
        return replace(self.call, query=self.call.query.to(wide), key=self.call.key.to(wide))

    def __iter__(self) -> Iterator[Terms]:
        """Iterate over the terms of each head on the first image."""
        return (self.terms(head) for head in range(self.heads))


@dataclass(frozen=True)
class LayerChoice:
    """Layers and heads of a transformer to show.

    Args:
        layers: Attention layers by name, or by number from 0 in running order. None for all.
        heads: "mean", the number of one head, or "all" for the mean followed by each head.
    """

    layers: Sequence[int | str] | None = None
    heads: HeadChoice = "mean"

    def of(self, captured: Mapping[str, Terms | RecordedAttention]) -> dict[int, RecordedAttention]:
        """Return the chosen layers by number. Default: all layers with maps of an image."""
        found = [layer for layer in captured.values() if isinstance(layer, RecordedAttention)]
        if self.layers is None:
            return {number: layer for number, layer in enumerate(found) if layer.has_maps}
        names = [layer.call.name for layer in found]
        return {number: found[number] for number in (layer_number(layer, names) for layer in self.layers)}


def layer_number(layer: int | str, names: Sequence[str]) -> int:
    """Return the number of an attention layer given by number or name."""
    if isinstance(layer, str):
        if layer not in names:
            raise unknown("attention layer", layer, names)
        return names.index(layer)
    if not 0 <= layer < len(names):
        raise ValueError(f"there is no attention layer {layer}; the model has {len(names)}, counted from 0")
    return layer
