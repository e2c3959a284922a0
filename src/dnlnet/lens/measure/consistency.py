"""Overlap of attention with ground truth (Table 1), exact, over every query of every image.

A map A and a region G overlap by sum_j A_j G_j (Eq. 8). For the pairwise term, G is the region of the query's own
class or the boundaries; for the unary term, the boundaries. For all queries together, this is attention with the
regions as values, P [H, E]: the fused operator computes it without forming P.
"""

# H, W size of the labels; h, w size of a block's map; N queries, M keys, K classes

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, sqrt
from statistics import stdev
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import Terms
from dnlnet.attention.terms import Logits
from dnlnet.data.classes import IGNORE
from dnlnet.lens.trace.capture import capture_blocks

RANDOM = "random"
BOUNDARY_WIDTH = 5  # pixels, as in the paper


class LabelledSample(Protocol):
    """An image (3, H, W) and the classes of its pixels (H, W)."""

    @property
    def image(self) -> Tensor:
        """(3, H, W)."""

    @property
    def labels(self) -> Tensor:
        """(H, W)."""


@dataclass(frozen=True)
class Overlaps:
    """Overlaps of one block's attention with one image's ground truth, averaged over labelled queries.

    None if the variant lacks the term, or no query is labelled. `pair_void` and `unary_void` are the shares of
    attention on unlabelled pixels, which overlap with nothing.
    """

    pair_within: float | None
    pair_boundary: float | None
    unary_boundary: float | None
    pair_void: float | None
    unary_void: float | None


STATISTICS = {
    "pair_within": "pair ∩ within-category",
    "pair_boundary": "pair ∩ boundary",
    "unary_boundary": "unary ∩ boundary",
    "pair_void": "pair ∩ void",
    "unary_void": "unary ∩ void",
}


@dataclass(frozen=True)
class Average:
    """A mean over images with its standard error; one image has none."""

    mean: float
    error: float | None
    images: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Average | None":
        """The average of the known values; None if there are none.

        >>> Average.of([0.25, None, 0.75])
        Average(mean=0.5, error=0.25, images=2)
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        count = len(known)
        mean = sum(known) / count
        return cls(mean, stdev(known) / sqrt(count) if count > 1 else None, count)


@dataclass(frozen=True)
class Truth:
    """The ground truth of one image at full resolution: labels and their boundaries."""

    labels: Tensor  # (H, W), IGNORE if unlabelled
    boundary: Tensor  # (H, W) bool
    classes: int

    @classmethod
    def of(cls, labels: Tensor, classes: int, width: int = BOUNDARY_WIDTH, void_edges: bool = False) -> "Truth":
        """Make the ground truth of a label map."""
        return cls(labels, boundary_map(labels, width, void_edges), classes)

    def query_classes(self, size: Sequence[int]) -> Tensor:
        """(N,), the most frequent class of each cell; K if most of it is unlabelled."""
        return self._shares(size).argmax(dim=0).flatten()

    def regions(self, size: Sequence[int]) -> Tensor:
        """(M, K + 2): the shares of each class, of unlabelled pixels and of boundaries in each cell."""
        boundary = _cell_shares(self.boundary, size)
        return torch.cat([self._shares(size), boundary[None]]).flatten(1).T.contiguous()

    def _shares(self, size: Sequence[int]) -> Tensor:
        void = (self.labels < 0) | (self.labels >= self.classes)
        masks = [*(self.labels == k for k in range(self.classes)), void]
        return torch.stack([_cell_shares(mask, size) for mask in masks])


def boundary_map(labels: Tensor, width: int = BOUNDARY_WIDTH, void_edges: bool = False) -> Tensor:
    """(H, W) bool: the pixels closer than `width` to a contour between two classes.

    The pixels on both sides of a contour have distance 0, so `width` pixels on each side are marked.

    Args:
        labels: (H, W).
        width: in pixels of the label map.
        void_edges: also count contours between labelled and unlabelled pixels.

    >>> boundary_map(torch.tensor([[0, 0, 0, 1, 1, 1]]), width=2).int()
    tensor([[0, 1, 1, 1, 1, 0]], dtype=torch.int32)
    """
    if width < 1:
        raise ValueError(f"the boundary width must be at least 1 pixel, got {width}")
    contour = torch.zeros_like(labels, dtype=torch.bool)
    for axis in (0, 1):
        count = labels.shape[axis] - 1
        first, second = labels.narrow(axis, 0, count), labels.narrow(axis, 1, count)
        differ = first != second
        if not void_edges:
            differ &= (first != IGNORE) & (second != IGNORE)
        contour.narrow(axis, 0, count).logical_or_(differ)
        contour.narrow(axis, 1, count).logical_or_(differ)
    # A disc is a stack of horizontal lines: spread the contour along each, then move it up or down.
    near = torch.zeros_like(contour)
    height = contour.shape[0]
    for dy in range(min(width, height)):
        reach = isqrt(width**2 - dy**2 - 1)  # the largest dx with dx^2 + dy^2 < width^2
        line = F.max_pool1d(contour.float(), 2 * reach + 1, stride=1, padding=reach).bool()
        near[dy:] |= line[: height - dy]
        near[: height - dy] |= line[dy:]
    return near


def find_overlaps(terms: Terms, truth: Truth) -> Overlaps:
    """The overlaps of a block's terms on one image with the ground truth."""
    return overlaps_of_heads(terms, truth)[0]


def overlaps_of_heads(terms: Terms, truth: Truth) -> list[Overlaps]:
    """The overlaps of each head's terms, which have the place of the batch, on one image."""
    regions = truth.regions(terms.key_size)  # (M, K + 2)
    pairs = _over_queries(terms.applied("pairwise", regions), truth, terms.size)
    unary = terms.applied("unary", regions)
    found = []
    for head in range(max(len(pairs), 0 if unary is None else len(unary))):
        within, boundary, void = (pairs[head] if pairs else None) or (None, None, None)
        of_unary = [None, None] if unary is None else [float(unary[head, 0, at]) for at in (-1, -2)]
        found.append(Overlaps(within, boundary, of_unary[0], void, of_unary[1]))
    return found


def attention_overlaps(terms: Terms, truth: Truth) -> list[tuple[float, float] | None]:
    """The shares of each head's attention itself within the query's class and on boundaries, on one image.

    None if no query is labelled. Where two softmaxes are added, it is the share of both together.
    """
    regions = truth.regions(terms.key_size)
    total = regions.new_ones(len(regions), 1)
    found = terms.applied("combined", torch.cat([total, regions], dim=1))
    assert found is not None
    shares = _over_queries(found[..., 1:] / found[..., :1], truth, terms.size)
    return [None if share is None else share[:2] for share in shares]


def uniform_overlaps(size: Sequence[int], key_size: Sequence[int], truth: Truth) -> tuple[float, float] | None:
    """The shares of a uniform map within the query's class and on boundaries, for maps of these sizes."""
    mean = truth.regions(key_size).mean(dim=0)
    (shares,) = _over_queries(mean.expand(1, _count(size), -1), truth, size)
    return None if shares is None else shares[:2]


def _over_queries(
    applied: Tensor | None, truth: Truth, size: Sequence[int]
) -> list[tuple[float, float, float] | None]:
    """Means over labelled queries of attention (heads, N, K + 2) within the query's class, on boundaries, on void."""
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


def uniform_terms(terms: Terms) -> Terms:
    """Terms of the same size with uniform attention: the average of random maps."""
    queries, shared_query = torch.zeros(1, _count(terms.size), 1), torch.zeros(1, 1, 1)
    key = torch.zeros(1, _count(terms.key_size), 1)
    return Terms(Logits(queries, key), Logits(shared_query, key), None, terms.size, terms.key_size)


def measure_overlaps(
    look: Callable[[Tensor], Mapping[str, Terms]],
    samples: Iterable[LabelledSample],
    classes: int,
    *,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    random: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, list[Overlaps]]:
    """Overlaps of every block or layer of a model, by its name, one entry per image; means over heads.

    Args:
        look: from an image (3, H, W) of 0..255 to the terms of blocks, with heads in the place of the batch.
        samples: images and labels, one at a time.
        classes: number of classes.
        width, void_edges: as for `boundary_map`.
        random: also measure a uniform map on the first block's grid, under the name `RANDOM`.
        progress: called after each image.
    """
    found: dict[str, list[Overlaps]] = {}
    for sample in samples:
        truth = Truth.of(sample.labels, classes, width, void_edges)
        blocks = look(sample.image)
        for name, terms in _with_random(blocks) if random else blocks.items():
            found.setdefault(name, []).append(_mean_overlaps(overlaps_of_heads(terms, truth)))
        progress()
    return found


def block_looker(network: nn.Module, run: Callable[[Tensor], object]) -> Callable[[Tensor], Mapping[str, Terms]]:
    """A function from an image to the terms of a network's blocks, which `run` makes it see once."""

    def look(image: Tensor) -> Mapping[str, Terms]:
        with capture_blocks(network) as blocks:
            run(image)
        return blocks

    return look


def _mean_overlaps(heads: Sequence[Overlaps]) -> Overlaps:
    averages = {name: Average.of(getattr(head, name) for head in heads) for name in STATISTICS}
    return Overlaps(**{name: None if average is None else average.mean for name, average in averages.items()})


def average_overlaps(found: Sequence[Overlaps]) -> dict[str, Average | None]:
    """Mean and standard error of each statistic over images."""
    return {name: Average.of(getattr(overlaps, name) for overlaps in found) for name in STATISTICS}


def overlaps_json(table: Mapping[str, Mapping[str, Average | None]]) -> dict[str, dict[str, Any]]:
    """A table of averages in types that JSON has.

    >>> overlaps_json({"dnl": {"pair_within": Average(0.5, 0.25, 2), "pair_void": None}})
    {'dnl': {'pair_within': {'mean': 0.5, 'error': 0.25, 'images': 2}, 'pair_void': None}}
    """
    return {
        name: {key: None if average is None else vars(average) for key, average in row.items()}
        for name, row in table.items()
    }


def _with_random(blocks: Mapping[str, Terms]) -> Iterable[tuple[str, Terms]]:
    yield from blocks.items()
    yield RANDOM, uniform_terms(next(iter(blocks.values())))


def _cell_shares(mask: Tensor, size: Sequence[int]) -> Tensor:
    """The share of each grid cell that the mask covers."""
    height, width = size
    return F.adaptive_avg_pool2d(mask.float()[None], (height, width))[0]


def _count(size: Sequence[int]) -> int:
    return int(torch.Size(size).numel())
