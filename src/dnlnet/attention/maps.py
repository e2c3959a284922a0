"""Attention maps as the paper shows them: each term normalised by its own softmax."""

# B batch, Q chosen queries, M key positions, S spatial sizes of the key map (L, H x W or T x H x W)

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from dnlnet.attention.operator import attend
from dnlnet.attention.spec import Centring, Variant
from dnlnet.attention.terms import Embeddings, Logits, coupled_logits, pairwise_logits, unary_logits
from dnlnet.errors import shown
from dnlnet.lazy import provided

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from dnlnet.lens.show.map_figure import DrawableMaps

Positions = Iterable[int | Sequence[int]] | Tensor
Term = Literal["pairwise", "unary", "combined"]


@dataclass(frozen=True, repr=False)
class AttentionMaps:
    """Attention of Q query positions over the key map.

    Attributes:
        pairwise: (B, Q, *S), each query's map summing to 1; None for a variant without the term.
        unary: (B, *S), one map for all queries, summing to 1; None for a variant without the term.
        combined: (B, Q, *S), the attention the block applies. It sums to 1 when coupled (Eq. 2, 13) or with a
            single term, and to 2 when two softmaxes are added (Eq. 12, 14). Gates are not in it.
        queries: Positions of the queries as fractions of the map's lengths; None if unknown.

    Draw them with ``maps.plot(over=image)``, ``show()`` or ``save("maps.png")``. Notebooks show the figure.
    """

    pairwise: Tensor | None
    unary: Tensor | None
    combined: Tensor
    queries: tuple[tuple[float, ...], ...] | None = None

    def __repr__(self) -> str:
        batch, queries, *size = self.combined.shape
        terms = [name for name in ("pairwise", "unary") if getattr(self, name) is not None]
        over = f"{batch} x {queries} queries over {' x '.join(map(str, size))} positions"
        return f"AttentionMaps({over}: {', '.join([*terms, 'combined'])})"

    def plot(self, over: Any = None) -> "Figure":
        """Return a figure with one row of maps per query.

        Args:
            over: Image to draw 2-d maps over: a file, a Pillow image, an array or a tensor.
        """
        return self._drawn(over).plot()

    def show(self, over: Any = None) -> None:
        """Show the figure below the notebook cell, or in the system's image viewer."""
        self._drawn(over).show()

    def save(self, path: "Path | str", over: Any = None) -> None:
        """Write the figure in the format of the file name: PNG, PDF, SVG."""
        self._drawn(over).save(path)

    def _repr_png_(self) -> bytes | None:
        with suppress(ModuleNotFoundError):  # without matplotlib, a notebook shows the text
            return self._drawn()._repr_png_()
        return None

    def _drawn(self, over: Any = None) -> "DrawableMaps":
        drawable: DrawableMaps = provided("DrawableMaps")(self, over)
        return drawable


@dataclass(frozen=True, repr=False)
class Terms:
    """Logits of a block's terms on one input, which give the maps of any query in O(N) memory.

    Attributes:
        pairwise, unary: The separate terms, None for a variant without the term; for `nl`, split by Eq. 5.
        coupled: Their sum, for variants with a single softmax.
        size: Size of the query map, e.g. (H, W).
        key_size: Size of the key map, which is smaller if keys are pooled.
    """

    pairwise: Logits | None
    unary: Logits | None
    coupled: Logits | None
    size: tuple[int, ...]
    key_size: tuple[int, ...]

    @classmethod
    def of(
        cls,
        embeddings: Embeddings,
        variant: Variant,
        centring: Centring,
        size: Sequence[int],
        key_size: Sequence[int],
    ) -> "Terms":
        """Compute the variant's terms from the embeddings of one input."""
        return cls(
            pairwise_logits(embeddings, centring) if variant.pairwise else None,
            unary_logits(embeddings, centring) if variant.unary else None,
            coupled_logits(embeddings, centring) if variant.coupled else None,
            tuple(size),
            tuple(key_size),
        )

    def __repr__(self) -> str:
        terms = ", ".join(name for name in ("pairwise", "unary") if getattr(self, name) is not None)
        return f"{type(self).__name__}({' x '.join(map(str, self.size))} positions: {terms})"

    @torch.no_grad()
    def maps(self, queries: Positions) -> AttentionMaps:
        """Return the maps of chosen positions, e.g. [(row, column)]."""
        rows = flatten_positions(queries, self.size)
        strides = [prod(self.size[axis + 1 :]) for axis in range(len(self.size))]  # torch.unravel_index imports sympy
        middles = tuple(
            tuple((row // stride % length + 0.5) / length for stride, length in zip(strides, self.size, strict=True))
            for row in rows.tolist()
        )
        return replace(self.maps_of_rows(rows), queries=middles)

    @torch.no_grad()
    def maps_of_rows(self, rows: Tensor) -> AttentionMaps:
        """Return the maps of positions given as indices into the flattened query map."""
        pairwise, unary, combined = (self._softmax(t, rows) for t in (self.pairwise, self.unary, self.coupled))
        if combined is None:
            parts = [part for part in (pairwise, unary) if part is not None]
            combined = sum(parts[1:], start=parts[0]).expand(-1, len(rows), *self.key_size)
        return AttentionMaps(pairwise, None if unary is None else unary.squeeze(1), combined)

    @torch.no_grad()
    def applied(self, term: Term, values: Tensor) -> Tensor | None:
        """sum_j A_ij v_j for every query i, (B, N, C), or (B, 1, C) for the unary term, without forming A.

        Args:
            term: Term whose map A is. The combined map sums to 2 where two softmaxes are added.
            values: (M, C).

        Returns:
            None for a variant without the term.
        """
        logits = {"pairwise": self.pairwise, "unary": self.unary, "combined": self.coupled}[term]
        if logits is not None:
            return self._applied(logits, values)
        if term != "combined":
            return None
        unary, pairwise = (self.applied(part, values) for part in ("unary", "pairwise"))
        if unary is None:
            return pairwise
        count = prod(self.size)
        return unary.expand(-1, count, -1) if pairwise is None else unary + pairwise

    def _applied(self, term: Logits, values: Tensor) -> Tensor:
        wide = torch.promote_types(term.query.dtype, torch.float32)  # half precision would lose small weights
        query, key = term.query.to(wide).contiguous(), term.key.to(wide).contiguous()
        return attend(query, key, values.to(query.device, wide).expand(len(query), -1, -1))

    def _softmax(self, term: Logits | None, rows: Tensor) -> Tensor | None:
        if term is None:
            return None
        logits = self._logits(term, rows)
        return logits.softmax(dim=-1).reshape(*logits.shape[:2], *self.key_size)

    def _logits(self, term: Logits, rows: Tensor) -> Tensor:
        """(B, Q or 1, M)."""
        query = term.query if term is self.unary else term.query[:, rows.to(term.query.device)]
        # Logits in half precision overflow, and lose digits that matter to the softmax.
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            return query.to(wide) @ term.key.to(wide).mT


def flatten_positions(queries: Positions, size: Sequence[int]) -> Tensor:
    """Convert positions such as (row, column) to indices into the flattened map.

    >>> flatten_positions([(0, 1), (2, 3)], size=(4, 5))
    tensor([ 1, 13])
    """
    form = " x ".join(map(str, size))
    try:
        points = [_coordinates(p) for p in (queries.tolist() if isinstance(queries, Tensor) else queries)]
    except TypeError:
        expected = f"positions of {len(size)} whole numbers on the {form} map, such as {[(0,) * len(size)]}"
        raise ValueError(f"queries are {' '.join(shown(queries).split())}; expected {expected}") from None
    if not points:
        raise ValueError("no query positions were given; pass at least one, e.g. [(0, 0)]")
    for point in points:
        if len(point) != len(size) or not all(0 <= c < s for c, s in zip(point, size, strict=True)):
            raise ValueError(f"query position {shown(point)} is not on the {form} map; positions count from 0")
    strides = [prod(size[axis + 1 :]) for axis in range(len(size))]
    return torch.tensor([sum(c * s for c, s in zip(p, strides, strict=True)) for p in points])


def _coordinates(point: Any) -> tuple[int, ...]:
    """Return the integers of a position. Raises TypeError for booleans and floats, even 1.0."""
    try:
        given: Iterable[Any] = (index(point),)
    except TypeError:
        given = point
    if isinstance(point, bool) or any("bool" in type(one).__name__ for one in given):  # numpy.bool is a number too
        raise TypeError("a boolean")
    return tuple(map(index, given))
