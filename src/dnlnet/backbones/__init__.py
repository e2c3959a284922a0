"""Networks that turn images or clips into feature maps."""

from typing import TYPE_CHECKING

from dnlnet.backbones.rows import BACKBONES, VIDEO_BACKBONES, BackboneRow
from dnlnet.lazy import importer

if TYPE_CHECKING:
    from dnlnet.backbones.image import Backbone
    from dnlnet.backbones.resnet3d import SlowOnly, inflate
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

__getattr__ = importer(
    __name__,
    {
        "dnlnet.backbones.image": "Backbone",
        "dnlnet.backbones.resnet3d": "SlowOnly inflate",
        "dnlnet.backbones.weights": "LoadReport find_backbones load_weights read_content read_state_dict "
        "split_checkpoint",
    },
)
