"""Exportable segmentation networks: pixels in, logits and attention maps out."""

# B batch, K classes, Q query points, H, W size of the image; h, w size of a block's map

from torch import Tensor

from dnlnet.backbones.pixels import normalised
from dnlnet.deployment import Axes, WithMaps


class ExportableSegmentor(WithMaps):
    """Network from images (B, 3, H, W) to logits (B, K, H, W), and to each block's maps of the given queries.

    Args:
        network: Network that returns logits of normalised images.
        size: Default height and width.
        queries: Points whose pairwise maps (B, Q, h, w) are outputs too, with the unary map (B, h, w).

    >>> import torch
    >>> from dnlnet.backbones import Backbone
    >>> from dnlnet.segmentation.network import Segmentor
    >>> network = Segmentor(Backbone("resnet18", 16), 5, "dnl", width=32).eval()
    >>> exportable = ExportableSegmentor(network, (64, 80), [(0.5, 0.25)])
    >>> dict(zip(exportable.outputs, (tuple(x.shape) for x in exportable(torch.rand(1, 3, 64, 80)))))
    {'logits': (1, 5, 64, 80), 'pairwise': (1, 1, 4, 5), 'unary': (1, 4, 5)}
    """

    takes = Axes("image", ("batch", 3, "height", "width"))

    def logits(self, x: Tensor) -> Tensor:
        """Return logits (B, K, H, W)."""
        logits: Tensor = self.network(normalised(x)).logits
        return logits
