"""Overlap of attention with ground truth (Table 1): exact, over all queries of each image.

A map A and a region G overlap by sum_j A_j G_j (Eq. 8). For the pairwise term, G is the region of the query's own
class or the boundaries; for the unary term, the boundaries. For all queries together, this is attention with the
regions as values: the fused operator computes it without forming the map. Labels keep their own resolution and are
averaged over the cells of the map.
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
    attention on unlabelled pixels, which overlap with nothing. `attention_within` and `attention_boundary` are the
    shares of the whole attention; None unless requested.
    """

    pair_within: float | None = None
    pair_boundary: float | None = None
    unary_boundary: float | None = None
    pair_void: float | None = None
    unary_void: float | None = None
    attention_within: float | None = None
    attention_boundary: float | None = None


TABLE_1 = {
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


def measure_overlaps(captured: Mapping[str, Terms | RecordedAttention], truth: GroundTruth) -> dict[str, Overlaps]:
    """Return the overlaps of each captured block or layer on one image, averaged over heads.

    Layers whose tokens do not lie on the image are left out. The last entry, `RANDOM`, is a uniform map on the first
    grid.
    """
    measured: dict[str, Overlaps] = {}
    grids = []
    for name, found in captured.items():
        terms = terms_on_image(found)
        if terms is not None and prod(terms.size) > 1:  # not attention of the class token alone
            measured[name] = _mean_over_heads(overlaps_of_heads(terms, truth))
            grids.append((terms.size, terms.key_size))
    if grids:
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


def overlaps_of_heads(terms: Terms, truth: GroundTruth, *, whole: bool = False) -> list[Overlaps]:
    """Return the overlaps of each head (heads replace the batch) on one image.

    Args:
        terms: Terms of the heads.
        truth: Ground truth of the image.
        whole: Also measure the whole attention. If it is a sum of two softmaxes, the share is that of the sum.
    """
    regions = truth.regions(terms.key_size)  # (M, K + 2)
    pair, unary, attention = terms.applied("pairwise", regions), terms.applied("unary", regions), None
    if whole:
        total = regions.new_ones(len(regions), 1)
        attention = terms.applied("combined", torch.cat([total, regions], dim=1))
        assert attention is not None
        attention = attention[..., 1:] / attention[..., :1]
    heads = max(len(found) for found in (pair, unary) if found is not None)
    of_pair, of_attention = (_mean_over_queries(found, truth, terms.size, heads) for found in (pair, attention))
    of_unary = [(None, None)] * heads if unary is None else unary[:, 0, [-1, -2]].tolist()
    return [
        Overlaps(p[0], p[1], u[0], p[2], u[1], a[0], a[1])
        for p, u, a in zip(of_pair, of_unary, of_attention, strict=True)
    ]


def uniform_overlaps(size: Sequence[int], key_size: Sequence[int], truth: GroundTruth) -> Overlaps:
    """Return the overlaps of a uniform map, the average of random maps, for maps of these sizes."""
    mean = truth.regions(key_size).mean(dim=0)
    ((within, boundary, void),) = _mean_over_queries(mean.expand(1, prod(size), -1), truth, size, heads=1)
    return Overlaps(within, boundary, float(mean[-1]), void, float(mean[-2]))


def _mean_over_queries(
    applied: Tensor | None, truth: GroundTruth, size: Sequence[int], heads: int
) -> list[list[float | None]]:
    """Average (heads, N, K + 2) over labelled queries: share in the query's class, on boundaries, on void."""
    of_query = truth.query_classes(size)
    known = of_query < truth.classes
    if applied is None or not known.any():
        return [[None, None, None]] * heads
    overlap = applied.cpu()[:, known]
    within = overlap.gather(2, of_query[known].expand(heads, -1)[..., None])[..., 0]
    shares: list[list[float | None]] = torch.stack(
        [x.mean(dim=1) for x in (within, overlap[..., -1], overlap[..., -2])], dim=1
    ).tolist()
    return shares


def _mean_over_heads(heads: Sequence[Overlaps]) -> Overlaps:
    averages = average_overlaps(heads)
    return Overlaps(**{name: None if average is None else average.mean for name, average in averages.items()})


def average_overlaps(found: Sequence[Overlaps]) -> dict[str, Average | None]:
    """Average each statistic of Table 1 over images."""
    return {name: Average.of(getattr(overlaps, name) for overlaps in found) for name in TABLE_1}


def overlaps_json(table: Mapping[str, Mapping[str, Average | None]]) -> dict[str, dict[str, Any]]:
    """Return a table of averages as JSON types.

    >>> overlaps_json({"dnl": {"pair_within": Average(0.5, 0.25, 2), "pair_void": None}})
    {'dnl': {'pair_within': {'mean': 0.5, 'error': 0.25, 'images': 2}, 'pair_void': None}}
    """
    return {
        name: {key: None if average is None else vars(average) for key, average in row.items()}
        for name, row in table.items()
    }
