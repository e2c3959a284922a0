"""Inference on whole images or in windows, at one scale or several."""

from dnlnet.segmentation.inference.logits import Inference
from dnlnet.segmentation.inference.tiles import MARGIN, tiled_labels, tiles
from dnlnet.segmentation.inference.windows import Network

__all__ = ["MARGIN", "Inference", "Network", "tiled_labels", "tiles"]
