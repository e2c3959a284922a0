"""Attention inside of windows, put back into the picture that they were cut out of."""

# L windows of an image, n tokens of a window, H heads, P positions of the picture, Q chosen queries

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.maps import AttentionMaps, Term
from dnlnet.attention.terms import Logits
from dnlnet.lens.steps import row_blocks, shared

if TYPE_CHECKING:
    from dnlnet.lens.recorded import Heads, Recorded


@dataclass(frozen=True, repr=False)
class WindowTerms(Terms):
    """Terms of heads that see one window each; a map is 0 outside of its query's window.

    The mean query is that of the window. The unary map is made of those of all windows, each with the same share.

    Attributes:
        recorded: that they are of.
        numbers: of the heads.
        image: in the batch.
        averaged: the maps are means over the heads.
    """

    recorded: "Recorded | None" = None
    numbers: tuple[int, ...] = ()
    image: int = 0
    averaged: bool = False

    @torch.no_grad()
    def maps_of_rows(self, rows: Tensor) -> AttentionMaps:
        """Maps of positions given as indices into the flattened picture."""
        assert self.recorded is not None
        assert self.pairwise is not None
        assert self.unary is not None
        places, outside = _places(self.recorded)
        of_window, of_token = _lookup(places, rows)
        tokens, which = of_token.unique(return_inverse=True)
        first = self.image * len(places)
        logits = self.recorded.widened().logits(tokens)[first : first + len(places), list(self.numbers)]
        combined = logits.masked_fill(outside[:, None, None], -torch.inf).softmax(dim=-1)
        whole = [self._put(combined[w, :, t], places[w]) for w, t in zip(of_window, which, strict=True)]
        query, key = self.pairwise.query, self.pairwise.key  # (H, L, n, D)
        products = [query[:, w, t, None] @ key[:, w].mT for w, t in zip(of_window, of_token, strict=True)]
        pair = [
            self._put(x[:, 0].masked_fill(outside[w], -torch.inf).softmax(dim=-1), places[w])
            for x, w in zip(products, of_window, strict=True)
        ]
        unary = self._put(self._unary_shares(outside).flatten(1), places.flatten())
        maps = AttentionMaps(torch.stack(pair, dim=1), unary, torch.stack(whole, dim=1))
        if not self.averaged:
            return maps
        return AttentionMaps(*(x.mean(dim=0, keepdim=True) for x in (maps.pairwise, maps.unary, maps.combined)))  # type: ignore[union-attr,arg-type]

    @torch.no_grad()
    def applied(self, term: Term, values: Tensor) -> Tensor:
        """sum_j A_ij v_j for every query i, (H, P, C), or (H, 1, C) of the unary term; values (P, C)."""
        assert self.recorded is not None
        assert self.pairwise is not None
        places, outside = _places(self.recorded)
        query, key = self.pairwise.query, self.pairwise.key  # (H, L, n, D)
        values = values.to(query)
        of_windows = values[places.clamp(min=0)]  # (L, n, C)
        if term == "unary":
            found = torch.einsum("hln,lnc->hc", self._unary_shares(outside), of_windows)[:, None]
        else:
            found = values.new_zeros(len(query), *values.shape)
            part = slice(self.image * len(places), (self.image + 1) * len(places))
            for tokens in row_blocks(places.shape[1], places.numel() * len(query)):
                if term == "pairwise":
                    logits = query[:, :, tokens] @ key.mT
                else:
                    seen = self.recorded.widened().logits(tokens.to(query.device))
                    logits = seen[part, list(self.numbers)].transpose(0, 1)
                weights = logits.masked_fill(outside[:, None], -torch.inf).softmax(dim=-1)  # (H, L, rows, n)
                at = places[:, tokens]
                found[:, at[at >= 0]] = (weights @ of_windows)[:, at >= 0]
        return found.mean(dim=0, keepdim=True) if self.averaged else found

    def _unary_shares(self, outside: Tensor) -> Tensor:
        """The unary map by windows, (H, L, n), each with the same share."""
        assert self.unary is not None
        logits = (self.unary.query @ self.unary.key.mT).squeeze(2).masked_fill(outside, -torch.inf)
        return logits.softmax(dim=-1) / len(outside)

    def _put(self, values: Tensor, places: Tensor) -> Tensor:
        """Values (H, n) of tokens in an empty picture, (H, *S)."""
        inside = places >= 0
        whole = values.new_zeros(len(values), self.size[0] * self.size[1])
        whole[:, places[inside]] = values[:, inside]
        return whole.view(len(values), *self.size)


def window_terms(recorded: "Recorded", head: "Heads", image: int) -> WindowTerms:
    """The terms of one head, or of all, of an attention inside of windows."""
    layout = recorded.placed()
    numbers = recorded.numbers(head)
    places, outside = _places(recorded)
    seen = recorded.widened()
    part = slice(image * len(places), (image + 1) * len(places))
    factor = torch.as_tensor(seen.factor, dtype=seen.query.dtype, device=seen.query.device)
    query, key = seen.query * factor, shared(seen.key, seen.query)
    query, key = (x[part, numbers].transpose(0, 1) for x in (query, key))  # (H, L, n, D)
    inside = (~outside)[..., None].to(query.dtype)
    mean = (query * inside).sum(dim=2, keepdim=True) / inside.sum(dim=1, keepdim=True)
    return WindowTerms(
        Logits(query - mean, key),
        Logits(mean, key),
        Logits(query, key),
        layout.size,
        layout.key_size,
        recorded,
        tuple(numbers),
        image,
        head == "mean",
    )


def _places(recorded: "Recorded") -> tuple[Tensor, Tensor]:
    """(L, n) positions of the tokens, and which of them are padding."""
    places = recorded.placed().places
    assert places is not None
    places = places.to(recorded.seen.query.device)
    return places, places < 0


def _lookup(places: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The window and the token of each position."""
    count = places.shape[1]
    order = torch.full((int(places.max()) + 1,), -1, dtype=torch.int64, device=places.device)
    flat = places.flatten()
    order[flat[flat >= 0]] = torch.arange(len(flat), device=places.device)[flat >= 0]
    found = order[rows.to(places.device)]
    return found // count, found % count
