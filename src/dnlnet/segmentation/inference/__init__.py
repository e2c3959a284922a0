"""How a network is asked about an image: whole or in windows, at one size or several."""

from dnlnet.segmentation.inference.logits import Inference
from dnlnet.segmentation.inference.tiles import tiled_labels, tiles

__all__ = ["Inference", "tiled_labels", "tiles"]
