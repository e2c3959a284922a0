"""Networks as they are deployed: pixels in, plain tensors out, attention by its definition.

The blocks' own operator is known to this package alone. In its place every block forms its attention, N x M, out of
matrix products and softmaxes that every runtime has: the same numbers, for the price of that map.
"""

# B batch, Q query points, H, W size of the image, T frames

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock, Terms
from dnlnet.backbones.pixels import Pixels, normalised
from dnlnet.detection.network import Detector
from dnlnet.lens.capture import capture, find_blocks

Query = tuple[float, ...]  # x, y, and in a clip the time, each as a share of the whole in 0..1


@dataclass(frozen=True)
class Axes:
    """What goes in: the input's name and axes, of which those by name may be free."""

    name: str
    axes: tuple[str | int, ...]

    def free(self, names: Sequence[str]) -> dict[int, str]:
        """The positions of those of the named axes that the input has."""
        return {place: axis for place, axis in enumerate(self.axes) if axis in names and isinstance(axis, str)}


class Deployed(nn.Module):
    """A network whose input is pixels in 0..255, RGB, and whose output is a tuple of tensors, named by `outputs`."""

    takes: Axes
    outputs: tuple[str, ...]


class _WithMaps(Deployed):
    """Logits, and for each block the maps of chosen queries."""

    def __init__(self, network: nn.Module, queries: Sequence[Query], dims: int) -> None:
        super().__init__()
        self.network, self.queries = explicit(network), list(queries)
        self.outputs = ("logits", *_map_names(self.network, self.queries, dims))
        self.eval()

    def logits(self, x: Tensor) -> Tensor:
        """Of an input as it comes."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Logits, then the maps of each block."""
        if not self.queries:
            return (self.logits(x),)
        with capture(self.network) as blocks:
            logits = self.logits(x)
        return logits, *_maps(blocks, self.queries)


class DeployedSegmentor(_WithMaps):
    """Images (B, 3, H, W) to logits (B, K, H, W), and for each block the maps of chosen queries.

    Args:
        network: gives logits for normalised images; it is copied.
        queries: points whose pairwise maps (B, Q, h, w) are put out as well, with the unary map (B, h, w).

    >>> from dnlnet.backbones import Backbone
    >>> from dnlnet.segmentation.network import Segmentor
    >>> network = Segmentor(Backbone("resnet18", 16), 5, "dnl", width=32).eval()
    >>> deployed = DeployedSegmentor(network, [(0.5, 0.25)])
    >>> dict(zip(deployed.outputs, (tuple(x.shape) for x in deployed(torch.rand(1, 3, 64, 80)))))
    {'logits': (1, 5, 64, 80), 'pairwise': (1, 1, 4, 5), 'unary': (1, 4, 5)}
    """

    takes = Axes("image", ("batch", 3, "height", "width"))

    def __init__(self, network: nn.Module, queries: Sequence[Query] = ()) -> None:
        super().__init__(network, queries, dims=2)

    def logits(self, x: Tensor) -> Tensor:
        """(B, K, H, W)."""
        logits: Tensor = self.network(normalised(x)).logits
        return logits


class DeployedVideo(_WithMaps):
    """Clips (B, 3, T, H, W) to logits (B, K), and for each block the maps of chosen queries (x, y, time)."""

    takes = Axes("clip", ("batch", 3, "time", "height", "width"))

    def __init__(self, network: nn.Module, pixels: Pixels, queries: Sequence[Query] = ()) -> None:
        super().__init__(network, queries, dims=3)
        self.pixels = pixels

    def logits(self, x: Tensor) -> Tensor:
        """(B, K)."""
        logits: Tensor = self.network(self.pixels.normalised(x))
        return logits


class DeployedDetector(Deployed):
    """One image (3, H, W), at the size that it is to be looked at, to boxes, labels 1..K, scores and masks."""

    takes = Axes("image", (3, "height", "width"))
    outputs = ("boxes", "labels", "scores", "masks")

    def __init__(self, network: Detector) -> None:
        super().__init__()
        self.network = explicit(network)
        self.eval()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Boxes (n, 4), labels (n), scores (n) and masks (n, 1, H, W) in 0..1."""
        (found,) = self.network([image / 255])
        return tuple(found[name] for name in self.outputs)


class DeployedPyramid(Deployed):
    """Images (B, 3, H, W), both sides a multiple of 32, to the maps of a detector's feature pyramid."""

    takes = Axes("image", ("batch", 3, "height", "width"))
    outputs = ("p2", "p3", "p4", "p5", "p6")

    def __init__(self, network: Detector) -> None:
        super().__init__()
        self.network = explicit(network.backbone)
        self.eval()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """The maps, from fine to coarse."""
        return tuple(self.network(normalised(image)).values())


def explicit(network: nn.Module) -> nn.Module:
    """A copy of a network whose blocks form their attention instead of calling this package's operator.

    >>> copy = explicit(nn.Sequential(NonLocalBlock(8)))
    >>> copy[0].forward == copy[0].forward_explicit
    True
    """
    network = deepcopy(network).cpu().to(memory_format=torch.contiguous_format)
    for block in network.modules():
        if isinstance(block, NonLocalBlock):
            block.forward = block.forward_explicit  # type: ignore[method-assign]
    return network


def _map_names(network: nn.Module, queries: Sequence[Query], dims: int) -> list[str]:
    """pairwise and unary, those of them that the variant has; with the block's name if there are several."""
    if not queries:
        return []
    for query in queries:
        if len(query) != dims or not all(0 <= share <= 1 for share in query):
            form = "x,y,t" if dims == 3 else "x,y"
            raise ValueError(f"query {','.join(map(str, query))}: expected {form}, each a share in 0..1 of the whole")
    blocks = find_blocks(network)
    names = []
    for name, block in blocks.items():
        prefix = f"{name}." if len(blocks) > 1 else ""
        terms = {"pairwise": block.variant.pairwise, "unary": block.variant.unary is not None}
        names += [f"{prefix}{term}" for term, there in terms.items() if there]
    return names


def _maps(blocks: dict[str, Terms], queries: Sequence[Query]) -> list[Tensor]:
    """The maps of every block in the order of `_map_names`."""
    found = []
    for terms in blocks.values():
        maps = terms.maps_of_rows(_rows(queries, terms.size))
        found += [one for one in (maps.pairwise, maps.unary) if one is not None]
    return found


def _rows(queries: Sequence[Query], size: Sequence[int]) -> Tensor:
    """Indices into the flattened map of the cells that the queries lie in, for whatever size the input has."""
    index = torch.zeros(len(queries), dtype=torch.int64)
    for shares, count in zip(torch.tensor(queries).mT.flip(0), size, strict=True):  # the last axis is x
        index = index * count + (shares * count).to(torch.int64).clamp(max=count - 1)
    return index
