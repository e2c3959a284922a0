"""Overlap of attention with ground truth (Table 1): exact, over all queries of each image.

A map A and a region G overlap by sum_j A_j G_j (Eq. 8). For the pairwise term, G is the region of the query's own
class or the boundaries; for the unary term, the boundaries. For all queries together, this is attention with the
regions as values, P [H, E]: the fused operator computes it without forming P. Labels keep their own resolution and
are averaged over the cells of the map.
"""

# N queries, M keys, K classes

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from statistics import stdev
from typing import Any

import torch
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.attention.terms import Logits
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.trace.recorded import RecordedAttention

RANDOM = "random"


@dataclass(frozen=True)
class Overlaps:
    """Overlaps of attention with one image's ground truth, averaged over labelled queries.

    None if the variant lacks the term, or no query is labelled. `pair_void` and `unary_void` are the shares of
    attention on unlabelled pixels, which overlap with nothing.
    """

    pair_within: float | None = None
    pair_boundary: float | None = None
    unary_boundary: float | None = None
    pair_void: float | None = None
    unary_void: float | None = None


STATISTICS = {
    "pair_within": "pair ∩ within-category",
    "pair_boundary": "pair ∩ boundary",
    "unary_boundary": "unary ∩ boundary",
    "pair_void": "pair ∩ void",
    "unary_void": "unary ∩ void",
}


@dataclass(frozen=True)
class Average:
    """Mean over images and its standard error, which is None for a single image."""

    mean: float
    error: float | None
    images: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Average | None":
        """Average the known values; None if there are none.

        >>> Average.of([0.25, None, 0.75])
        Average(mean=0.5, error=0.25, images=2)
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        count = len(known)
        return cls(sum(known) / count, stdev(known) / sqrt(count) if count > 1 else None, count)


def measure_overlaps(
    captured: Mapping[str, Terms | RecordedAttention], truth: GroundTruth, *, random: bool = False
) -> dict[str, Overlaps]:
    """Return the overlaps of each captured block or layer on one image, averaged over heads.

    Args:
        captured: Attention on one image. Layers whose tokens do not lie on it are left out.
        truth: Ground truth of the image.
        random: Also measure a uniform map on the first grid, under the name `RANDOM`.
    """
    measured: dict[str, Overlaps] = {}
    grids = []
    for name, found in captured.items():
        terms = terms_on_image(found)
        if terms is not None and prod(terms.size) > 1:  # attention of the class token alone has one query
            measured[name] = _mean_over_heads(overlaps_of_heads(terms, truth))
            grids.append((terms.size, terms.key_size))
    if random and grids:
        measured[RANDOM] = uniform_overlaps(*grids[0], truth)
    return measured


def terms_on_image(found: Terms | RecordedAttention, image: int = 0) -> Terms | None:
    """Return the terms of all heads on one image of a batch; None if their tokens do not lie on an image."""
    if isinstance(found, RecordedAttention):
        on_image = not isinstance(found.layout, str) and found.layout.is_image
        return found.terms("all", image) if on_image else None
    if len(found.size) != 2:
        return None
    pairwise, unary, coupled = (
        None if term is None else Logits(term.query[image, None], term.key[image, None])
        for term in (found.pairwise, found.unary, found.coupled)
    )
    return replace(found, pairwise=pairwise, unary=unary, coupled=coupled)


def overlaps_of_heads(terms: Terms, truth: GroundTruth) -> list[Overlaps]:
    """Return the overlaps of each head's terms (heads replace the batch) on one image."""
    regions = truth.regions(terms.key_size)  # (M, K + 2)
    pairs = _mean_over_queries(terms.applied("pairwise", regions), truth, terms.size)
    unary = terms.applied("unary", regions)
    found = []
    for head in range(max(len(pairs), 0 if unary is None else len(unary))):
        within, boundary, void = (pairs[head] if pairs else None) or (None, None, None)
        unary_boundary, unary_void = (None, None) if unary is None else unary[head, 0, [-1, -2]].tolist()
        found.append(Overlaps(within, boundary, unary_boundary, void, unary_void))
    return found


def attention_overlaps(terms: Terms, truth: GroundTruth) -> list[tuple[float, float] | None]:
    """Return the share of each head's whole attention within the query's class and on boundaries, on one image.

    None if no query is labelled. If the attention is a sum of two softmaxes, the share is that of the sum.
    """
    regions = truth.regions(terms.key_size)
    total = regions.new_ones(len(regions), 1)
    found = terms.applied("combined", torch.cat([total, regions], dim=1))
    assert found is not None
    shares = _mean_over_queries(found[..., 1:] / found[..., :1], truth, terms.size)
    return [None if share is None else share[:2] for share in shares]


def uniform_overlaps(size: Sequence[int], key_size: Sequence[int], truth: GroundTruth) -> Overlaps:
    """Return the overlaps of a uniform map, the average of random maps, for maps of these sizes."""
    mean = truth.regions(key_size).mean(dim=0)
    (shares,) = _mean_over_queries(mean.expand(1, prod(size), -1), truth, size)
    within, boundary, void = shares or (None, None, None)
    return Overlaps(within, boundary, float(mean[-1]), void, float(mean[-2]))


def _mean_over_queries(
    applied: Tensor | None, truth: GroundTruth, size: Sequence[int]
) -> list[tuple[float, float, float] | None]:
    """Average (heads, N, K + 2) over labelled queries: share in the query's class, on boundaries, on void."""
    if applied is None:
        return []
    of_query = truth.query_classes(size)
    known = of_query < truth.classes
    if not known.any():
        return [None] * len(applied)
    overlap = applied.cpu()[:, known]
    within = overlap.gather(2, of_query[known].expand(len(overlap), -1)[..., None])[..., 0]
    columns = (within, overlap[..., -1], overlap[..., -2])
    return [
        (float(one), float(two), float(three))
        for one, two, three in zip(*(x.mean(dim=1) for x in columns), strict=True)
    ]


def _mean_over_heads(heads: Sequence[Overlaps]) -> Overlaps:
    averages = average_overlaps(heads)
    return Overlaps(**{name: None if average is None else average.mean for name, average in averages.items()})


def average_overlaps(found: Sequence[Overlaps]) -> dict[str, Average | None]:
    """Average each statistic over images."""
    return {name: Average.of(getattr(overlaps, name) for overlaps in found) for name in STATISTICS}


def overlaps_json(table: Mapping[str, Mapping[str, Average | None]]) -> dict[str, dict[str, Any]]:
    """Return a table of averages as JSON types.

    >>> overlaps_json({"dnl": {"pair_within": Average(0.5, 0.25, 2), "pair_void": None}})
    {'dnl': {'pair_within': {'mean': 0.5, 'error': 0.25, 'images': 2}, 'pair_void': None}}
    """
    return {
        name: {key: None if average is None else vars(average) for key, average in row.items()}
        for name, row in table.items()
    }
