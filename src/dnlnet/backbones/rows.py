"""Tables of the backbones by name. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BackboneRow:
    """Image backbone: its name in timm, and its options.

    Args:
        timm: Name in timm.
        output_strides: Possible strides of the last map, in image pixels; the first is the default.
        places: Pattern for the names of submodules that a block may follow.
        options: Further arguments for timm.
        bottlenecks: True if the blocks are bottlenecks. Their stride may move to the first 1 x 1 convolution, and
            their dilation can be set.
        maps: Indices of timm's feature maps to return; negative ones count from the last.
        parallel: True if the maps are parallel branches of the same depth. A head should then use all of them.
    """

    timm: str
    output_strides: tuple[int, ...]
    places: str
    options: Mapping[str, Any] = field(default_factory=dict)
    bottlenecks: bool = False
    parallel: bool = False
    maps: tuple[int, ...] = (1, 2, 3, 4)


_RESNET_STRIDES = (8, 16, 32)
_RESNET_PLACES = r"layer\d\.\d+"
# Features before the classifier widens them. Every branch keeps its own stride.
_HRNET: dict[str, Any] = {
    "output_strides": (32,),
    "places": r"layer1\.\d+|stage\d\.\d+\.branches\.\d+\.\d+",
    "options": {"feature_location": ""},
    "parallel": True,
}

NOWHERE = r"$^"  # matches nothing, because a block cannot follow tokens
VIT: dict[str, Any] = {"dynamic_img_size": True, "dynamic_img_pad": True}

BACKBONES: dict[str, BackboneRow] = {
    "resnet18": BackboneRow("resnet18", _RESNET_STRIDES, _RESNET_PLACES),
    # torchvision's first weights, as in the authors' detection code; timm's default weights are different.
    "resnet50": BackboneRow("resnet50.tv_in1k", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    "resnet101": BackboneRow("resnet101", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    # The paper's ResNets, with three 3 x 3 convolutions instead of the first 7 x 7 one.
    "resnet101s": BackboneRow("resnet101s", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    "resnet50s": BackboneRow("resnet50s", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    # The same with half as many channels in the stem, as in mmsegmentation.
    "resnet50c": BackboneRow("resnet50c", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    "resnet101c": BackboneRow("resnet101c", _RESNET_STRIDES, _RESNET_PLACES, bottlenecks=True),
    "mobilenetv2": BackboneRow("mobilenetv2_100", _RESNET_STRIDES, r"blocks\.\d\.\d+"),
    "hrnet_w18": BackboneRow("hrnet_w18", **_HRNET),
    "hrnet_w48": BackboneRow("hrnet_w48", **_HRNET),
    # Patch tokens of four layers as maps, for images of any size.
    "vit_s": BackboneRow("vit_small_patch14_dinov2", (14,), NOWHERE, VIT, maps=(2, 5, 8, 11)),
}


@dataclass(frozen=True)
class VideoRow:
    """Video backbone.

    Args:
        layers: Number of bottlenecks in each of the four stages.
        width: Number of channels of the stem, and between the convolutions of the first stage's bottlenecks.
    """

    layers: tuple[int, ...]
    width: int = 64


VIDEO_BACKBONES: Mapping[str, VideoRow] = {
    "slow_only_r50": VideoRow((3, 4, 6, 3)),
    "slow_only_r101": VideoRow((3, 4, 23, 3)),
    # For tests. It has the fewest layers with which the paper's placement works: a block after every second
    # bottleneck of two stages.
    "slow_only_tiny": VideoRow((1, 2, 2, 1), width=8),
}
