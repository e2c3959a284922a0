"""Segmentation networks as they are deployed: pixels in, logits and maps out."""

# B batch, K classes, Q query points, H, W size of the image; h, w size of a block's map

from collections.abc import Sequence

from torch import Tensor, nn

from dnlnet.backbones.pixels import normalised
from dnlnet.export import Axes, Query, WithMaps


class DeployedSegmentor(WithMaps):
    """Images (B, 3, H, W) to logits (B, K, H, W), and for each block the maps of chosen queries.

    Args:
        network: gives logits for normalised images.
        queries: points whose pairwise maps (B, Q, h, w) are put out as well, with the unary map (B, h, w).

    >>> import torch
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
