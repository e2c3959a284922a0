"""Reduce attention maps for a page: fewer cells, eight bits each."""

# Q queries that have a map, h, w size of a map of positions, r, c cells in its rows and columns

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.attention import Terms
from dnlnet.lens.show.attended_image import maps_by_term

_ROWS = 256  # queries per step: at 97 x 97 positions, their maps take 10 MB per term
_LEVELS = 255


@dataclass(frozen=True)
class Grid:
    """Division of a map of positions into cells of `factor` x `factor`; the last ones may be smaller.

    >>> grid = Grid((5, 7), factor=2)
    >>> grid.cells
    (3, 4)
    >>> grid.centres().tolist()[:4]
    [0, 2, 4, 6]
    """

    size: tuple[int, int]
    factor: int = 1

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise ValueError(f"factor must be at least 1, got {self.factor}")

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        height, width = self.size
        return -(-height // self.factor), -(-width // self.factor)

    @property
    def count(self) -> int:
        """Number of cells."""
        rows, columns = self.cells
        return rows * columns

    def means(self, maps: Tensor) -> Tensor:
        """Average maps (Q, h, w) over each cell: (Q, r, c)."""
        return F.avg_pool2d(maps[:, None], self.factor, ceil_mode=True, count_include_pad=False)[:, 0]

    def centres(self) -> Tensor:
        """Return the position in the middle of each cell, as an index into the flattened map, (r c,)."""
        rows, columns = (
            torch.tensor([(start + min(start + self.factor, n) - 1) // 2 for start in range(0, n, self.factor)])
            for n in self.size
        )
        return (rows[:, None] * self.size[1] + columns).flatten()


@dataclass(frozen=True)
class Codes:
    """Maps with eight bits per cell: code = round(255 sqrt((value - low) / (high - low))).

    The square root spends more codes on small values, because most attention is small. Starting at the minimum wastes
    no codes on nearly uniform attention.

    Attributes:
        codes: Codes, (Q, r, c).
        low, high: Minimum and maximum of each map, (Q,).
    """

    codes: NDArray[np.uint8]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def values(self) -> NDArray[np.float32]:
        """Decode the maps (Q, r, c), to within 1 / 255 of high - low."""
        low, high = self.low[:, None, None], self.high[:, None, None]
        values: NDArray[np.float32] = low + (self.codes.astype(np.float32) / _LEVELS) ** 2 * (high - low)
        return values


def quantise(maps: Tensor) -> Codes:
    """Quantise maps (Q, r, c).

    >>> quantise(torch.tensor([[[0.0, 0.25, 1.0]]])).codes.tolist()
    [[[0, 128, 255]]]
    """
    low, high = (edge.float()[:, None, None] for edge in maps.flatten(1).aminmax(dim=1))
    shares = (maps - low) / (high - low).clamp(min=torch.finfo(torch.float32).tiny)
    codes = (_LEVELS * shares.clamp(0, 1).sqrt()).round().to(torch.uint8)
    return Codes(codes.numpy(), low.flatten().numpy(), high.flatten().numpy())


@dataclass(frozen=True)
class CoarseMaps:
    """Maps of a block on one image: of the middle query of each query cell, over the key cells.

    Attributes:
        queries, keys: Grids of cells.
        parts: Stored maps by term: "pairwise" has one per query, "unary" one for all queries. "combined" is stored
            for coupled variants only, because otherwise it is the sum of the others.
        loss: Largest error in any map, including combined ones, relative to the map's maximum.
    """

    queries: Grid
    keys: Grid
    parts: dict[str, Codes]
    loss: float


def coarse_maps(terms: Terms, queries: Grid, keys: Grid, sample: int = 1) -> CoarseMaps:
    """Compute the maps of all query cells, or of every `sample`-th, a few hundred at a time.

    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 6, 9))
    >>> coarse_maps(terms, Grid((6, 9), 3), Grid((6, 9), 2)).parts["pairwise"].codes.shape
    (6, 3, 5)
    """
    rows = queries.centres()[::sample]
    if terms.pairwise is None:
        rows = rows[:1]  # one map for all
    blocks = [_coarse_block(terms, block_rows, queries, keys) for block_rows in rows.split(_ROWS)]
    first = blocks[0].parts
    parts = {
        term: first[term] if term == "unary" else _concatenate([block.parts[term] for block in blocks])
        for term in first
    }
    return CoarseMaps(queries, keys, parts, max(block.loss for block in blocks))


def _coarse_block(terms: Terms, rows: Tensor, queries: Grid, keys: Grid) -> CoarseMaps:
    """Compute the maps of a few hundred queries at once."""
    exact = maps_by_term(terms.maps_of_rows(rows))
    coarse = {name: keys.means(part.flatten(0, -3).cpu()) for name, part in exact.items()}
    stored = {name: quantise(part) for name, part in coarse.items() if name != "combined" or terms.coupled}
    shown = {name: codes.values() for name, codes in stored.items()}
    # The page adds the decoded terms, so the sum has the errors of both.
    shown.setdefault("combined", sum(shown.values(), start=np.zeros(1, np.float32)))
    loss = max(_loss(coarse[name].numpy(), shown[name]) for name in coarse)
    return CoarseMaps(queries, keys, stored, loss)


def _loss(exact: NDArray[np.floating], shown: NDArray[np.float32]) -> float:
    return float((np.abs(shown - exact).max(axis=(1, 2)) / exact.max(axis=(1, 2))).max())


def _concatenate(parts: Sequence[Codes]) -> Codes:
    codes, low, high = zip(*((part.codes, part.low, part.high) for part in parts), strict=True)
    return Codes(np.concatenate(codes), np.concatenate(low), np.concatenate(high))
