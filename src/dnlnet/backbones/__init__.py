"""Networks that turn images or clips into feature maps."""

from dnlnet.backbones.image import BACKBONES, Backbone, BackboneRow
from dnlnet.backbones.resnet3d import VIDEO_BACKBONES, SlowOnly, inflate
from dnlnet.backbones.weights import (
    LoadReport,
    find_backbones,
    load_weights,
    read_content,
    read_state_dict,
    split_checkpoint,
)

__all__ = [
    "BACKBONES",
    "VIDEO_BACKBONES",
    "Backbone",
    "BackboneRow",
    "LoadReport",
    "SlowOnly",
    "find_backbones",
    "inflate",
    "load_weights",
    "read_content",
    "read_state_dict",
    "split_checkpoint",
]
