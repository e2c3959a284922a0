"""Exportable networks: pixels in, tensors out."""

# B batch, Q query points, H, W size of the image, T frames

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dnlnet.attention import Terms
from dnlnet.lens.trace.capture import capture_blocks, find_blocks

FREE_AXES = ("batch", "height", "width")  # axes that an exported file may leave free
Query = tuple[float, ...]  # x, y, and in a clip the time, each in 0..1


@dataclass(frozen=True)
class Axes:
    """Name and axes of an input. Named axes may be free."""

    name: str
    axes: tuple[str | int, ...]

    @property
    def dims(self) -> int:
        """Number of axes of a position: 2 in images, 3 in clips."""
        return sum(axis in ("time", "height", "width") for axis in self.axes)

    def free(self, names: Sequence[str]) -> dict[int, str]:
        """Return the given axes that the input has, by position."""
        return {place: axis for place, axis in enumerate(self.axes) if axis in names and isinstance(axis, str)}


class Exportable(nn.Module):
    """Network that maps RGB pixels in 0..255 to a tuple of tensors, named by `outputs`.

    Args:
        size: Default height and width of the input.
    """

    takes: Axes
    outputs: tuple[str, ...]
    frames: int = 1  # frames of a clip, a fixed number
    traced: bool = False  # use PyTorch's older exporter, for a computation that depends on the image
    remark: str = ""  # note for users of its files

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size


class WithMaps(Exportable):
    """Network that returns the logits, and the maps of chosen queries in each block."""

    def __init__(self, network: nn.Module, size: tuple[int, int], queries: Sequence[Query]) -> None:
        super().__init__(size)
        self.network, self.queries = network, list(queries)
        self.outputs = ("logits", *_map_names(self.network, self.queries, self.takes.dims))
        self.eval()

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of an input in pixels."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the logits, then the maps of each block."""
        if not self.queries:
            return (self.logits(x),)
        with capture_blocks(self.network) as blocks:
            logits = self.logits(x)
        return logits, *_maps(blocks, self.queries)


def _map_names(network: nn.Module, queries: Sequence[Query], dims: int) -> list[str]:
    """Return the names of the maps: pairwise and unary, with the name of the block if there are several."""
    if not queries:
        return []
    for query in queries:
        if len(query) != dims or not all(0 <= share <= 1 for share in query):
            form = "x,y,t" if dims == 3 else "x,y"
            raise ValueError(f"query {','.join(map(str, query))}: expected {form}, each in 0..1")
    blocks = find_blocks(network)
    names = []
    for name, block in blocks.items():
        prefix = f"{name}." if len(blocks) > 1 else ""
        terms = {"pairwise": block.variant.pairwise, "unary": block.variant.unary is not None}
        names += [f"{prefix}{term}" for term, present in terms.items() if present]
    return names


def _maps(blocks: dict[str, Terms], queries: Sequence[Query]) -> list[Tensor]:
    """Return the maps of every block, in the order of `_map_names`."""
    found = []
    for terms in blocks.values():
        maps = terms.maps_of_rows(_query_indices(queries, terms.size))
        found += [one for one in (maps.pairwise, maps.unary) if one is not None]
    return found


def _query_indices(queries: Sequence[Query], size: Sequence[int]) -> Tensor:
    """Return the indices of the queries in the flattened map of a size, which may be symbolic."""
    index = torch.zeros(len(queries), dtype=torch.int64)
    for shares, count in zip(torch.tensor(queries).mT.flip(0), size, strict=True):  # the last axis is x
        index = index * count + (shares * count).to(torch.int64).clamp(max=count - 1)
    return index
