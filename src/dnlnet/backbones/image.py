"""Image backbones: a thin layer over timm with one class, and one table row per network.

timm takes longer to import than torch, so it is imported only for the networks that need it.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.backbones.hub import hub_or_cache, reason
from dnlnet.backbones.mobilenet import MobileNetV2
from dnlnet.backbones.pixels import IMAGENET, MEAN, STD, Pixels
from dnlnet.backbones.rows import BACKBONES, NOWHERE, VIT, BackboneRow
from dnlnet.errors import unknown

_OWN = {"mobilenetv2": MobileNetV2}  # backbones without timm


class Backbone(nn.Module):
    """Network that returns four feature maps of an image, from fine to coarse.

    Args:
        name: Name of a row of `BACKBONES`, or of a timm network.
        output_stride: Stride of the last map, in image pixels. Below 32, the last stages are dilated instead of
            strided. Default: the first stride of the row, which is 8 for networks with several.
        stride_in_1x1: Put the stride of a bottleneck in its first 1 x 1 convolution instead of the 3 x 3 one. Weights
            converted from Caffe need this.
        dilations: Dilations of the 3 x 3 convolutions in the bottlenecks of each of the four stages. The last number
            of a stage repeats for its remaining blocks. Default: set by the output stride, such as
            ((1,), (1,), (1, 2), (2, 4)) for 8.
        ceil_pool: Round up in the stem's max-pool, like Caffe and the authors' code. Maps gain a row and a column if
            the sides of the image are multiples of 4; nothing changes for sides of 769 pixels.
        pixels: Normalisation that the weights expect. The backbone converts to it: its input is normalised as for
            ImageNet, like that of every other backbone.
        pretrained: Load timm's ImageNet weights from its cache or the network. For a local file, use `load_weights`.

    >>> backbone = Backbone("resnet18", output_stride=16)
    >>> backbone.channels, backbone.strides
    ((64, 128, 256, 512), (4, 8, 16, 16))
    >>> [tuple(x.shape[1:]) for x in backbone(torch.rand(1, 3, 64, 96))]
    [(64, 16, 24), (128, 8, 12), (256, 4, 6), (512, 4, 6)]
    >>> backbone.places[-1]
    'body.layer4.1'
    """

    renormalise: Tensor | None

    def __init__(
        self,
        name: str,
        output_stride: int | None = None,
        *,
        stride_in_1x1: bool = False,
        dilations: Sequence[Sequence[int]] | None = None,
        ceil_pool: bool = False,
        pixels: Pixels = IMAGENET,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        row = find_backbone(name)
        stride = row.output_strides[0] if output_stride is None else output_stride
        if stride not in row.output_strides:
            allowed = ", ".join(map(str, row.output_strides))
            raise ValueError(f"{name} has no output stride {stride}; choose one of: {allowed}")
        if stride_in_1x1 and not row.bottlenecks:
            raise ValueError(f"{name} has no bottleneck blocks, so stride_in_1x1=True has nothing to act on")
        if dilations is not None and not row.bottlenecks:
            raise ValueError(f"{name} has no bottleneck blocks, so dilations have nothing to act on")
        self.name, self.parallel = name, row.parallel
        # Scale and shift of each colour convert ImageNet's normalisation to that of the weights.
        self.blue_first = pixels.blue_first
        old_mean, old, new_mean, new = torch.tensor([MEAN, STD, pixels.mean, pixels.deviation]).view(4, 3, 1, 1)
        change = None if pixels == IMAGENET else torch.stack([old / new, (old_mean - new_mean) / new])
        self.register_buffer("renormalise", change, persistent=False)
        options = dict(row.options) if len(row.output_strides) == 1 else {**row.options, "output_stride": stride}
        self.body: Any
        if name in _OWN:
            self.body = _OWN[name](stride)
            self.channels, self.strides = self.body.channels, self.body.strides
            if pretrained:
                self.body.load_state_dict(_create(row.timm, pretrained, row.maps, options).state_dict())
        else:
            self.body = _create(row.timm, pretrained, row.maps, options)
            self.channels = tuple(self.body.feature_info.channels())
            self.strides = tuple(self.body.feature_info.reduction())
        if stride_in_1x1:
            _move_strides(self.body)
        if dilations is not None:
            _dilate(self.body, dilations)
        if ceil_pool:
            if not hasattr(self.body, "maxpool"):
                raise ValueError(f"{name} has no max-pool in its stem, so ceil_pool=True has nothing to act on")
            self.body.maxpool.ceil_mode = True

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps of (B, 3, H, W) images, with `channels` and `strides`."""
        images = renormalised(images, self.renormalise, self.blue_first)
        if not self.parallel:
            features: list[Tensor] = self.body(images)
            return features
        # The branches are summed, so every stride must divide the size. Padding with zeros is harmless, because the
        # convolutions see zeros outside the image anyway.
        height, width = images.shape[-2:]
        padded = F.pad(images, (0, -width % self.strides[-1], 0, -height % self.strides[-1]))
        return [
            x[..., : -(-height // stride), : -(-width // stride)]
            for x, stride in zip(self.body(padded), self.strides, strict=True)
        ]

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the residual blocks after which `dnlnet.insert` can add an attention block."""
        pattern = re.compile(rf"body\.({find_backbone(self.name).places})")
        return tuple(name for name, _ in self.named_modules() if pattern.fullmatch(name))


def renormalised(images: Tensor, change: Tensor | None, blue_first: bool) -> Tensor:
    """Return images with another normalisation: scale and shift of each colour, then the order of the colours."""
    if change is None:
        return images
    images = images * change[0] + change[1]
    return images.flip(1) if blue_first else images


def find_backbone(name: str) -> BackboneRow:
    """Return the row of a backbone. A timm network without one gets a default row with its last four maps.

    >>> find_backbone("convnext_atto").maps
    (-4, -3, -2, -1)
    """
    if name in BACKBONES:
        return BACKBONES[name]
    import timm

    if not timm.is_model(name.split(".")[0]):
        raise unknown("backbone", name, BACKBONES)
    with torch.device("meta"):
        tokens = hasattr(timm.create_model(name), "patch_embed")
    options = VIT if tokens and "vit" in name else {}
    stride = _create(name, False, (-1,), options).feature_info.reduction()[-1]
    return BackboneRow(name, (stride,), NOWHERE, options, maps=(-4, -3, -2, -1))


def _create(name: str, pretrained: bool, maps: tuple[int, ...], options: Mapping[str, Any]) -> Any:
    import timm

    create = partial(timm.create_model, name, features_only=True, out_indices=maps, **options)
    if not pretrained:
        return create(pretrained=False)
    try:
        with hub_or_cache():
            return create(pretrained=True)
    except (OSError, RuntimeError) as error:
        raise OSError(
            f"ImageNet weights of {name} are not in timm's cache and could not be fetched ({reason(error)}); "
            "give a file of them with --weights FILE. Recipes with mbv2 in their name need no download: "
            "the weights of mobilenetv2 ship with dnlnet. --weights none starts from random weights, which need far "
            "more images and iterations to reach the same score"
        ) from error


def _move_strides(body: nn.Module) -> None:
    """Swap the strides of the first two convolutions of each bottleneck."""
    for module in body.modules():
        first, second = getattr(module, "conv1", None), getattr(module, "conv2", None)
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and hasattr(module, "conv3"):
            first.stride, second.stride = second.stride, first.stride


def _dilate(body: nn.Module, dilations: Sequence[Sequence[int]]) -> None:
    """Set the dilations of the bottlenecks' 3 x 3 convolutions without changing the sizes of the maps."""
    if len(dilations) != 4 or not all(stage and min(stage) >= 1 for stage in dilations):
        raise ValueError(f"expected four stages of at least one dilation of at least 1, got {dilations}")
    for number, stage in enumerate(dilations, start=1):
        for index, block in enumerate(body.get_submodule(f"layer{number}").children()):
            dilation = stage[min(index, len(stage) - 1)]
            convolution: Any = block.get_submodule("conv2")
            convolution.dilation = convolution.padding = (dilation, dilation)
