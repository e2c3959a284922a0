"""The two terms of the attention as products of a query and a key.

Every term of the paper has this form. Under a softmax over j, anything constant in j cancels, so

- pairwise, (q_i - mu_q).(k_j - mu_k), needs only a centred query: (q_i - mu_q).k_j (the rest is constant);
- unary from the keys, mu_q.k_j, is attention with the single query mu_q;
- unary saliency, m_j, is attention with the single query 1 over keys of width one;
- their sum is [q_i - mu_q, 1].[k_j, m_j], or simply q_i.k_j when both share the key (Eq. 5).

The fused and the explicit path both start from these pairs.
"""

# B batch, N query positions, M key positions, D embedding width

from dataclasses import dataclass

import torch
from torch import Tensor

from dnlnet.attention.spec import Centring, Variant


@dataclass(frozen=True)
class Logits:
    """l_ij = query_i.key_j; a unary term has one query for all positions."""

    query: Tensor  # (B, N or 1, D)
    key: Tensor  # (B, M, D)


@dataclass(frozen=True)
class Embeddings:
    """Projections of a block's input; None if the variant has no such projection."""

    query: Tensor | None  # (B, N, D)
    key: Tensor | None  # (B, M, D)
    saliency: Tensor | None  # (B, M, 1)
    unary_factor: float = 1.0  # multiplies mu_q in a separate unary term, to undo the scale contained in q


def pairwise_logits(embeddings: Embeddings, centring: Centring, exact: bool = False) -> Logits:
    """(q_i - mu_q).(k_j - mu_k), up to a constant in j unless it is `exact`."""
    query, key = _query_and_key(embeddings)
    if exact:
        key = key - query_mean(key, centring)
    return Logits(clamp_to_finite(query - query_mean(query, centring)), key)


def unary_logits(embeddings: Embeddings, centring: Centring) -> Logits:
    """m_j (Eq. 11) if there is a saliency, otherwise mu_q.k_j (Eq. 5, 7)."""
    if embeddings.saliency is not None:
        return Logits(embeddings.saliency.new_ones(embeddings.saliency.shape[0], 1, 1), embeddings.saliency)
    query, key = _query_and_key(embeddings)
    return Logits(query_mean(query, centring) * embeddings.unary_factor, key)


def coupled_logits(embeddings: Embeddings, centring: Centring) -> Logits:
    """Pairwise plus unary in one product: [q_i - mu_q, 1].[k_j, m_j] (Eq. 13), or q_i.k_j (Eq. 5)."""
    if embeddings.saliency is None:
        return Logits(*_query_and_key(embeddings))
    pair, unary = pairwise_logits(embeddings, centring), unary_logits(embeddings, centring)
    ones = unary.query.expand(-1, pair.query.shape[1], -1)
    return Logits(torch.cat([pair.query, ones], dim=2), torch.cat([pair.key, unary.key], dim=2))


def attention_logits(
    embeddings: Embeddings, variant: Variant, centring: Centring, exact: bool = False
) -> tuple[Logits, Logits | None]:
    """Return the logits of the attention, and of the unary softmax that a variant with two softmaxes adds.

    Without a softmax over them, pairwise logits need to be `exact`.
    """
    if variant.coupled:
        return coupled_logits(embeddings, centring), None
    if not variant.pairwise:
        return unary_logits(embeddings, centring), None
    added = unary_logits(embeddings, centring) if variant.separate else None
    return pairwise_logits(embeddings, centring, exact), added


def query_mean(query: Tensor, centring: Centring) -> Tensor:
    """mu_q = (1/N) sum_i q_i, (B, 1, D); with `sample` centring also averaged over the channels, with `none` 0."""
    if centring == "none":
        return torch.zeros_like(query[:, :1])
    if centring == "sample":
        return query.mean(dim=(1, 2), keepdim=True).expand(-1, -1, query.shape[2])
    return query.mean(dim=1, keepdim=True)


def weigh_by_dot_products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """sum_j (q_i.k_j / M) v_j, summed over the keys first: no matrix of N x M is formed."""
    return query @ (key.mT @ value / key.shape[1])


def clamp_to_finite(tokens: Tensor) -> Tensor:
    """Clamp float16 to its finite range: an infinite projection would turn into NaN when centred."""
    if tokens.dtype != torch.float16:
        return tokens
    limit = torch.finfo(tokens.dtype).max
    return tokens.clamp(-limit, limit)


def _query_and_key(embeddings: Embeddings) -> tuple[Tensor, Tensor]:
    if embeddings.query is None or embeddings.key is None:
        raise ValueError("this variant has no query and key, so no pairwise term")
    return embeddings.query, embeddings.key
