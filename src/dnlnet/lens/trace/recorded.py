"""An attention of any model as it ran: its heads, their terms, and their maps."""

# B batch, H heads, N queries, M keys, D width, Q chosen queries, S sizes of the map of keys

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.maps import AttentionMaps, Positions
from dnlnet.attention.terms import Logits
from dnlnet.lens.trace.layout import Layout
from dnlnet.lens.trace.steps import Seen, row_blocks, shared

Heads = int | Literal["mean", "all"]


@dataclass(frozen=True, repr=False)
class HeadTerms(Terms):
    """The terms of heads, in the place of the batch, split by Eq. 5; bias and mask are in the combined map alone.

    Attributes:
        recorded: that they are of.
        chosen: (window or image, head) of each.
        averaged: the maps are means over the heads.
    """

    recorded: "Recorded | None" = None
    chosen: tuple[tuple[int, int], ...] = ()
    averaged: bool = False

    @torch.no_grad()
    def maps_of_rows(self, rows: Tensor) -> AttentionMaps:
        """Maps of positions given as indices into the flattened map of queries."""
        maps = super().maps_of_rows(rows)
        if not self.averaged:
            return maps
        pairwise, unary, combined = (
            None if part is None else part.mean(dim=0, keepdim=True)
            for part in (maps.pairwise, maps.unary, maps.combined)
        )
        assert combined is not None
        return AttentionMaps(pairwise, unary, combined)

    def _applied(self, term: Logits, values: Tensor) -> Tensor:
        assert self.recorded is not None
        if term is not self.coupled and self.recorded.hidden(self.chosen) is None:
            found = super()._applied(term, values)
        else:
            values = values.to(term.key)
            blocks = row_blocks(term.query.shape[1], len(term.key) * len(values))
            found = torch.cat([self._logits(term, rows).softmax(dim=-1) @ values for rows in blocks], dim=1)
        return found.mean(dim=0, keepdim=True) if self.averaged else found

    def _logits(self, term: Logits, rows: Tensor) -> Tensor:
        assert self.recorded is not None
        if term is self.coupled:
            return self.recorded.combined_logits(self.chosen, rows)
        logits = super()._logits(term, rows)
        hidden = self.recorded.hidden(self.chosen)
        return logits if hidden is None else logits.masked_fill(hidden[:, None], -torch.inf)


@dataclass(frozen=True, repr=False)
class Recorded:
    """One attention of a model: queries and keys alone are kept, linear in the number of tokens.

    Attributes:
        seen: (B, H, N, D) queries, (B, H or fewer, M, D) keys, and what happens to their products.
        layout: how the tokens lie; a sentence if that is not known.

    The mean query is that of the tokens of the map: those of the picture, without prefix tokens. Maps are over the
    tokens of the picture and sum to 1 there, which is the attention on condition that it falls on the picture;
    `weights` are the model's own, over all tokens.
    """

    seen: Seen
    layout: Layout | str

    def __repr__(self) -> str:
        batch, heads, count, _ = self.seen.query.shape
        return f"Recorded({batch} x {heads} heads of {count} tokens)"

    @property
    def heads(self) -> int:
        """How many heads."""
        return int(self.seen.query.shape[1])

    def weights(self, rows: Tensor | None = None) -> Tensor:
        """The model's own attention, (B, H, Q or N, M), over all tokens, of all queries or of some rows of tokens."""
        with torch.no_grad():
            return self.widened().logits(rows).softmax(dim=-1)

    def terms(self, head: Heads = "mean", image: int = 0) -> Terms:
        """The terms of one head, of all (in the place of the batch), or of the mean over heads, on one image."""
        layout = self.placed()
        images = len(self.seen.query) // (1 if layout.places is None else len(layout.places))
        if not 0 <= image < images:
            raise ValueError(f"{self.seen.name}: there is no image {image}; the batch has {images}, counted from 0")
        if layout.places is not None:
            from dnlnet.lens.trace.window_terms import window_terms

            return window_terms(self, head, image)
        return self.terms_of([(image, number) for number in self.numbers(head)], averaged=head == "mean")

    def maps(self, queries: Positions, head: Heads = "all", image: int = 0) -> AttentionMaps:
        """Maps of chosen positions, e.g. [(row, column)]; heads take the place of the batch."""
        return self.terms(head, image).maps(queries)

    def numbers(self, head: Heads) -> list[int]:
        """Which heads are meant."""
        if isinstance(head, str):
            if head not in ("mean", "all"):
                raise ValueError(f"heads are 'mean', 'all' or a number, not {head!r}")
            return list(range(self.heads))
        if not 0 <= head < self.heads:
            raise ValueError(f"{self.seen.name}: there is no head {head}; it has {self.heads}, counted from 0")
        return [head]

    def placed(self) -> Layout:
        """How the tokens lie; an error if that is not known."""
        if isinstance(self.layout, str):
            raise ValueError(f"{self.seen.name}: {self.layout}")
        return self.layout

    def laid_out(self, layout: Layout) -> "Recorded":
        """The same attention with tokens that lie as you say."""
        count, key_count = self.seen.query.shape[-2], self.seen.key.shape[-2]
        if layout.places is not None and layout.places_of_keys is not None:
            said = layout.places.shape[1], layout.places_of_keys.shape[1]
            if said != (count, key_count):
                raise ValueError(
                    f"{self.seen.name}: windows of {count} queries and {key_count} keys were seen, but the layout is "
                    f"of windows of {said[0]} and {said[1]}"
                )
            return replace(self, layout=layout)
        said = (layout.prefix + prod(layout.size), layout.key_prefix + prod(layout.key_size))
        if said != (count, key_count):
            raise ValueError(
                f"{self.seen.name}: {count} queries and {key_count} keys were seen, but prefix tokens and size of "
                f"the layout make {said[0]} and {said[1]}"
            )
        return replace(self, layout=layout)

    def terms_of(self, chosen: Sequence[tuple[int, int]], *, averaged: bool = False) -> HeadTerms:
        """The terms of some heads, given with the image, or the window, that each is of."""
        layout = self.placed()
        query, key = self.query_and_key(chosen)
        mean = query.mean(dim=1, keepdim=True)
        return HeadTerms(
            Logits(query - mean, key),
            Logits(mean, key),
            Logits(query, key),
            layout.size,
            layout.key_size,
            self,
            tuple(chosen),
            averaged,
        )

    def query_and_key(self, chosen: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Queries and keys of the map's tokens, (heads, N, D), whose products are the logits before bias and mask."""
        layout, seen = self.placed(), self.widened()
        keys = shared(seen.key, seen.query)
        factor = torch.as_tensor(seen.factor, dtype=seen.query.dtype, device=seen.query.device)
        factors = factor.broadcast_to(*seen.query.shape[:2], 1, 1)
        query = torch.stack([seen.query[image, head] * factors[image, head] for image, head in chosen])
        key = torch.stack([keys[image, head] for image, head in chosen])
        return query[:, layout.prefix :], key[:, layout.key_prefix :]

    def combined_logits(self, chosen: Sequence[tuple[int, int]], rows: Tensor) -> Tensor:
        """Logits (heads, Q, M) of some positions with bias and mask."""
        layout = self.placed()
        logits = self.widened().logits(rows.to(self.seen.query.device) + layout.prefix)
        return torch.stack([logits[image, head] for image, head in chosen])[..., layout.key_prefix :]

    def hidden(self, chosen: Sequence[tuple[int, int]]) -> Tensor | None:
        """(heads, M), True for the keys of the map that no query may see; None if there are none."""
        whole = self.hides()
        if whole is None:
            return None
        return torch.stack([whole[image, head] for image, head in chosen])[:, self.placed().key_prefix :]

    def hides(self) -> Tensor | None:
        """(B, H, M), True for the keys, of all tokens, that no query may see; None if there are none."""
        mask = self.seen.hides
        if mask is None:
            return None
        while mask.dim() < 3:
            mask = mask[None]
        return mask.broadcast_to(*self.seen.query.shape[:2], self.seen.key.shape[-2])

    def widened(self) -> Seen:
        """In single precision at least: logits in half of it overflow, and lose digits that matter to the softmax."""
        wide = torch.promote_types(self.seen.query.dtype, torch.float32)
        return replace(self.seen, query=self.seen.query.to(wide), key=self.seen.key.to(wide))

    def __iter__(self) -> Iterator[Terms]:
        """The terms of each head on the first image."""
        return (self.terms(head) for head in range(self.heads))
