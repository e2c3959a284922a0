"""Terms of windowed attention, on the map of the whole image."""

# L windows of an image, n queries and m keys of a window, H heads, P positions of the image, Q chosen queries

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.maps import AttentionMaps, Term
from dnlnet.lens.trace.attention_call import row_blocks
from dnlnet.lens.trace.recorded import HeadChoice, RecordedAttention, mean_over_heads, split_logits


@dataclass(frozen=True, repr=False)
class WindowTerms(Terms):
    """Terms of heads that attend within windows. A map is 0 outside its query's window.

    The mean query is per window. The unary map joins the unary maps of all windows, each with the same total.

    Attributes:
        recorded: Attention of the heads.
        numbers: Head numbers.
        image: Number of the image in the batch.
        averaged: The maps are means over the heads.
    """

    recorded: RecordedAttention = field(kw_only=True)
    numbers: list[int] = field(kw_only=True)
    image: int = field(kw_only=True)
    averaged: bool = field(kw_only=True)

    @torch.no_grad()
    def maps_of_rows(self, rows: Tensor) -> AttentionMaps:
        """Return the maps of positions given as indices into the flattened image."""
        assert self.pairwise is not None
        assert self.unary is not None
        places, keys = _places(self.recorded)
        outside = keys < 0
        of_window, of_token = _lookup(places, rows)
        tokens, which = of_token.unique(return_inverse=True)
        logits = self._combined(tokens, len(places))
        combined = logits.masked_fill(outside[:, None, None], -torch.inf).softmax(dim=-1)
        whole = [self._put(combined[w, :, t], keys[w]) for w, t in zip(of_window, which, strict=True)]
        query, key = self.pairwise.query, self.pairwise.key  # (H, L, n, D), (H, L, m, D)
        products = [query[:, w, t, None] @ key[:, w].mT for w, t in zip(of_window, of_token, strict=True)]
        pair = [
            self._put(x[:, 0].masked_fill(outside[w], -torch.inf).softmax(dim=-1), keys[w])
            for x, w in zip(products, of_window, strict=True)
        ]
        unary = self._put(self._unary_shares(outside).flatten(1), keys.flatten())
        maps = AttentionMaps(torch.stack(pair, dim=1), unary, torch.stack(whole, dim=1))
        return mean_over_heads(maps) if self.averaged else maps

    @torch.no_grad()
    def applied(self, term: Term, values: Tensor) -> Tensor:
        """Return sum_j A_ij v_j for every query i: (H, P, C), or (H, 1, C) of the unary term; `values` is (P, C)."""
        assert self.pairwise is not None
        places, keys = _places(self.recorded)
        outside = keys < 0
        query, key = self.pairwise.query, self.pairwise.key  # (H, L, n, D), (H, L, m, D)
        values = values.to(query)
        of_windows = values[keys.clamp(min=0)]  # (L, m, C)
        if term == "unary":
            found = torch.einsum("hlm,lmc->hc", self._unary_shares(outside), of_windows)[:, None]
        else:
            found = values.new_zeros(len(query), prod(self.size), values.shape[1])
            for tokens in row_blocks(places.shape[1], keys.numel() * len(query)):
                if term == "pairwise":
                    logits = query[:, :, tokens] @ key.mT
                else:
                    logits = self._combined(tokens.to(query.device), len(places)).transpose(0, 1)
                weights = logits.masked_fill(outside[:, None], -torch.inf).softmax(dim=-1)  # (H, L, rows, m)
                at = places[:, tokens]
                found[:, at[at >= 0]] = (weights @ of_windows)[:, at >= 0]
        return found.mean(dim=0, keepdim=True) if self.averaged else found

    def _combined(self, tokens: Tensor, windows: int) -> Tensor:
        """Return the logits (L, H, tokens, m) of some tokens of each of the image's windows, with bias and mask."""
        first = self.image * windows
        return self.recorded.widened().logits(tokens)[first : first + windows, self.numbers]

    def _unary_shares(self, outside: Tensor) -> Tensor:
        """Return the unary map by window, (H, L, m), each window with the same total."""
        assert self.unary is not None
        logits = (self.unary.query @ self.unary.key.mT).squeeze(2).masked_fill(outside, -torch.inf)
        return logits.softmax(dim=-1) / len(outside)

    def _put(self, values: Tensor, places: Tensor) -> Tensor:
        """Put values (H, m) of keys into an empty image (H, *S)."""
        inside = places >= 0
        whole = values.new_zeros(len(values), prod(self.key_size))
        whole[:, places[inside]] = values[:, inside]
        return whole.view(len(values), *self.key_size)


def window_terms(recorded: RecordedAttention, head: HeadChoice, image: int) -> WindowTerms:
    """Return the terms of windowed attention for one head, for all heads, or for their mean."""
    layout = recorded.require_layout()
    numbers = recorded.head_numbers(head)
    places, _ = _places(recorded)
    part = slice(image * len(places), (image + 1) * len(places))
    query, key = (x[part, numbers].transpose(0, 1) for x in recorded.scaled_query_and_key())  # (H, L, n or m, D)
    inside = (places >= 0)[..., None].to(query.dtype)
    mean = (query * inside).sum(dim=2, keepdim=True) / inside.sum(dim=1, keepdim=True)
    return WindowTerms(
        *split_logits(query, key, mean),
        layout.size,
        layout.key_size,
        recorded=recorded,
        numbers=numbers,
        image=image,
        averaged=head == "mean",
    )


def _places(recorded: RecordedAttention) -> tuple[Tensor, Tensor]:
    """Return the positions (L, n) of the queries and (L, m) of the keys, with -1 for padding."""
    layout, device = recorded.require_layout(), recorded.call.query.device
    assert layout.places is not None
    assert layout.places_of_keys is not None
    return layout.places.to(device), layout.places_of_keys.to(device)


def _lookup(places: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the window and token of each position."""
    count = places.shape[1]
    order = torch.full((int(places.max()) + 1,), -1, dtype=torch.int64, device=places.device)
    flat = places.flatten()
    order[flat[flat >= 0]] = torch.arange(len(flat), device=places.device)[flat >= 0]
    found = order[rows.to(places.device)]
    return found // count, found % count
