"""Networks that turn an image into feature maps, for heads to work on."""

from dnlnet.backbones.image import BACKBONES, Backbone
from dnlnet.backbones.weights import LoadReport, load_weights, read_content, read_state_dict, split_checkpoint

__all__ = [
    "BACKBONES",
    "Backbone",
    "LoadReport",
    "load_weights",
    "read_content",
    "read_state_dict",
    "split_checkpoint",
]
