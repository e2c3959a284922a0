"""Statistics of each head's attention: its unary share, its dependence on the query, and where it goes.

For one head on one image, with queries q_i, keys k_j and attention A_ij = softmax_j(q_i.k_j + bias and mask), over
all tokens, including prefix tokens such as class and registers, without keys that no query may see:

- unary share: Var_j(mu_q.k_j) / mean_i Var_j(q_i.k_j), the part of the logits that is the same for all queries. With
  p_i = q_i - mu_q, Var_j(q_i.k_j) = Var_j(mu_q.k_j) + Var_j(p_i.k_j) + 2 Cov_j(mu_q.k_j, p_i.k_j), and the mean over
  i of the last is 2 Cov_j(mu_q.k_j, (mean_i p_i).k_j) = 0: unary and pairwise variance add up, so the share is in
  0..1. With the covariance C of the keys, Var_j(q.k_j) = q'Cq, which needs no map;
- dependence on the query: mean_i 1/2 sum_j |A_ij - mean_i A_ij|, 0 if all queries attend alike;
- effective number of positions: mean_i exp(-sum_j A_ij log A_ij), from 1 to the number of keys;
- share of the strongest position: max_j mean_i A_ij;
- share of the prefix tokens: the sum of mean_i A_ij over them.

Windowed attention is measured per window and averaged over the windows.
"""

# G groups that attend apart (images, or windows of images), H heads, N queries, M keys, D width, R rows of a block

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.terms import Logits
from dnlnet.lens.trace.attention_call import row_blocks
from dnlnet.lens.trace.recorded import RecordedAttention, split_logits

STATISTICS = {
    "unary_share": "unary share of the logits' variance",
    "dependence": "dependence on the query",
    "positions": "effective number of positions",
    "strongest": "share of the strongest position",
    "prefix": "share of the prefix tokens",
}


@torch.no_grad()
def measure_heads(found: Terms | RecordedAttention) -> dict[str, Tensor]:
    """Return each of `STATISTICS` as (images, H); NaN where it has no value, no `prefix` without prefix tokens.

    Memory is linear in the number of tokens: attention is computed for a block of rows at a time.
    """
    return _measure(_from_recorded(found) if isinstance(found, RecordedAttention) else _from_terms(found))


@dataclass(frozen=True)
class _GroupedAttention:
    """Attention of groups of tokens, the source of all statistics.

    Args:
        terms: Pairwise and unary logits: (G, H, N or 1, D) queries and (G, H, M, D) keys.
        weights: Function from rows to the attention (G, H, R, M), NaN in the row of a query that may see nothing.
        asking: (G, 1, N), True for the queries that count.
        visible: (G, H or 1, M), True for the keys that count.
        windows: Number of windows per image; each window is a group.
        prefix: Number of prefix tokens among the keys.
    """

    terms: tuple[Logits | None, Logits | None]
    weights: Callable[[Tensor], Tensor]
    asking: Tensor
    visible: Tensor
    windows: int = 1
    prefix: int = 0


def _from_recorded(recorded: RecordedAttention) -> _GroupedAttention:
    """Group the attention of any model; padding of windows does not count."""
    call, layout = recorded.widened(), recorded.layout
    query, key = recorded.scaled_query_and_key()
    groups, _, count, _ = query.shape
    asking = torch.ones(groups, 1, count, dtype=torch.bool, device=query.device)
    visible = torch.ones(groups, 1, key.shape[-2], dtype=torch.bool, device=query.device)
    windows, prefix = _windows(recorded), 0
    if not isinstance(layout, str):
        prefix = layout.key_prefix
        if layout.places is not None and layout.places_of_keys is not None:
            inside, inside_keys = (
                (places >= 0).to(query.device).repeat(groups // windows, 1)[:, None]
                for places in (layout.places, layout.places_of_keys)
            )
            asking, visible = asking & inside, visible & inside_keys
    hidden = recorded.hidden_keys()
    if hidden is not None:
        visible = visible & ~hidden
    some_hidden = not bool(visible.all())
    mean = _mean(query.mT, asking[..., None, :])[..., None, :]

    def weights(rows: Tensor) -> Tensor:
        logits = call.logits(rows.to(query.device))
        if some_hidden:
            logits = logits.masked_fill(~visible[..., None, :], -torch.inf)
        return logits.softmax(dim=-1)

    return _GroupedAttention(split_logits(query, key, mean)[:2], weights, asking, visible, windows, prefix)


def _windows(recorded: RecordedAttention) -> int:
    """Return the number of windows per image, also where their layout is unknown."""
    layout, groups = recorded.layout, recorded.call.query.shape[0]
    if not isinstance(layout, str):
        return 1 if layout.places is None else len(layout.places)
    given = recorded.call.enclosing[0][1] if recorded.call.enclosing else ()
    return groups // given[0] if len(given) == 4 and groups % given[0] == 0 else 1


def _from_terms(terms: Terms) -> _GroupedAttention:
    """Group the attention of one of our blocks: one head, with the terms of its variant."""
    first = terms.pairwise or terms.unary
    assert first is not None
    groups, device = len(first.key), first.key.device

    def apart(term: Logits | None) -> Logits | None:
        if term is None:
            return None
        wide = torch.promote_types(term.query.dtype, torch.float32)
        return Logits(term.query.to(wide)[:, None], term.key.to(wide)[:, None])

    def weights(rows: Tensor) -> Tensor:
        combined = terms.maps_of_rows(rows).combined.flatten(2)[:, None]
        return combined / combined.sum(dim=-1, keepdim=True)  # two softmaxes add up to 2

    count = int(torch.Size(terms.size).numel())
    asking = torch.ones(groups, 1, count, dtype=torch.bool, device=device)
    visible = torch.ones(groups, 1, first.key.shape[1], dtype=torch.bool, device=device)
    return _GroupedAttention((apart(terms.pairwise), apart(terms.unary)), weights, asking, visible)


def _measure(attention: _GroupedAttention) -> dict[str, Tensor]:
    groups, count, keys = len(attention.asking), attention.asking.shape[-1], attention.visible.shape[-1]
    pairwise, unary = (_variance(term, attention) for term in attention.terms)
    heads = next(len(x[0]) for x in (pairwise, unary) if x is not None)
    zeros = torch.zeros(groups, heads, device=attention.asking.device)
    pairwise, unary = (zeros if x is None else x for x in (pairwise, unary))
    width = groups * heads * keys

    # First the mean row and the entropies, then how far each row is from the mean row.
    total, positions, queries = zeros[..., None], zeros, zeros
    for rows in row_blocks(count, width):
        weights, counts = _rows(attention, rows)
        total = total + weights.sum(dim=-2)
        positions = positions + (torch.special.entr(weights).sum(dim=-1).exp() * counts).sum(dim=-1)
        queries = queries + counts.sum(dim=-1)
    mean_row = total / queries[..., None]
    distance = zeros
    for rows in row_blocks(count, width):
        weights, counts = _rows(attention, rows)
        weights.sub_(mean_row[..., None, :]).abs_()
        distance = distance + (weights.sum(dim=-1) * counts).sum(dim=-1) / 2

    def over_windows(values: Tensor) -> Tensor:
        """Average (G, H) over an image's windows, weighted by their number of queries, to (images, H)."""
        parts, weight = (x.view(-1, attention.windows, heads) for x in (values, queries))
        return torch.where(weight > 0, parts * weight, 0).sum(dim=1) / weight.sum(dim=1)

    found = {
        "unary_share": over_windows(unary) / over_windows(unary + pairwise),
        "dependence": over_windows(distance / queries),
        "positions": over_windows(positions / queries),
        "strongest": over_windows(mean_row.amax(dim=-1)),
    }
    if attention.prefix:
        found["prefix"] = over_windows(mean_row[..., : attention.prefix].sum(dim=-1))
    return found


def _rows(attention: _GroupedAttention, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention (G, H, R, M) of some queries, 0 for those that do not count, and 1 for those that do."""
    weights = attention.weights(rows)
    counts = attention.asking[..., rows] & weights[..., 0].isfinite()  # a row without a sum is NaN throughout
    if not counts.all():
        weights = torch.where(counts[..., None], weights, 0)
    return weights, counts.to(weights.dtype)


def _variance(term: Logits | None, attention: _GroupedAttention) -> Tensor | None:
    """Return mean_i Var_j(q_i.k_j), (G, H): the mean of q'Cq, with C the covariance of the keys."""
    if term is None:
        return None
    visible = attention.visible[..., None]
    centred = (term.key - _mean(term.key.mT, visible.mT)[..., None, :]) * visible
    covariance = centred.mT @ centred / visible.sum(dim=-2, keepdim=True)
    of_each = ((term.query @ covariance) * term.query).sum(dim=-1)  # (G, H, N or 1)
    return of_each[..., 0] if of_each.shape[-1] == 1 else _mean(of_each, attention.asking)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    """Average the values that count over the last dimension."""
    return (values * counts).sum(dim=-1) / counts.sum(dim=-1)
