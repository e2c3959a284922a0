"""MobileNetV2 with the names, initial weights and features of timm's `mobilenetv2_100`.

The included models use it, and importing timm takes longer than importing torch.
"""

from math import sqrt

import torch.nn.functional as F
from torch import Tensor, nn

# Expansion, channels, number of blocks and stride of each stage (Table 2 of the MobileNetV2 paper).
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_STEM = 32
MAPS = (1, 2, 4, 6)  # stages whose outputs are returned


class MobileNetV2(nn.Module):
    """Four feature maps of an image, with strides 4, 8, 16 and 32.

    Args:
        output_stride: Stride of the last map. Below 32, the last stages are dilated instead of strided.
    """

    def __init__(self, output_stride: int = 32) -> None:
        super().__init__()
        self.conv_stem = _convolution(3, _STEM, 3, stride=2)
        self.bn1 = nn.BatchNorm2d(_STEM)
        self.act1 = nn.ReLU6(inplace=True)
        for _ in range(2):  # timm builds and discards these, and a seed must give the same values as in timm
            nn.Conv2d(8, 8, 1)
        stages: list[nn.Sequential] = []
        strides: list[int] = []
        channels, reduction, dilation = _STEM, 2, 1
        for expansion, width, count, stride in _STAGES:
            strided = reduction * stride <= output_stride
            step, following = (stride, dilation) if strided else (1, dilation * stride)
            first = _block(channels, width, expansion, step, dilation)
            stages.append(
                nn.Sequential(first, *(_block(width, width, expansion, 1, following) for _ in range(count - 1)))
            )
            channels, reduction, dilation = width, reduction * step, following
            strides.append(reduction)
        self.blocks = nn.Sequential(*stages)
        self.channels = tuple(_STAGES[stage][1] for stage in MAPS)
        self.strides = tuple(strides[stage] for stage in MAPS)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
                nn.init.normal_(module.weight, 0, sqrt(2 / fan_out))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps of (B, 3, H, W) images."""
        x = self.act1(self.bn1(self.conv_stem(images)))
        maps: list[Tensor] = []
        for stage in self.blocks:
            x = stage(x)
            maps.append(x)
        return [maps[stage] for stage in MAPS]


class _Separable(nn.Module):
    """Depthwise and pointwise convolution, without expansion."""

    def __init__(self, channels_in: int, channels: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv_dw = _convolution(channels_in, channels_in, 3, stride, dilation, groups=channels_in)
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv_pw = _convolution(channels_in, channels, 1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = _activated(self.bn1(self.conv_dw(x)))
        normed: Tensor = self.bn2(self.conv_pw(y))
        return normed


class _InvertedResidual(nn.Module):
    """Pointwise expansion, depthwise convolution and pointwise projection, added to the input of the same shape."""

    def __init__(self, channels_in: int, channels: int, expansion: int, stride: int, dilation: int) -> None:
        super().__init__()
        inside = expansion * channels_in
        self.conv_pw = _convolution(channels_in, inside, 1)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv_dw = _convolution(inside, inside, 3, stride, dilation, groups=inside)
        self.bn2 = nn.BatchNorm2d(inside)
        self.conv_pwl = _convolution(inside, channels, 1)
        self.bn3 = nn.BatchNorm2d(channels)
        self.has_skip = channels_in == channels and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = _activated(self.bn1(self.conv_pw(x)))
        y = _activated(self.bn2(self.conv_dw(y)))
        projected: Tensor = self.bn3(self.conv_pwl(y))
        return projected + x if self.has_skip else projected


def _block(channels_in: int, channels: int, expansion: int, stride: int, dilation: int) -> nn.Module:
    if expansion == 1:
        return _Separable(channels_in, channels, stride, dilation)
    return _InvertedResidual(channels_in, channels, expansion, stride, dilation)


def _convolution(
    channels_in: int, channels: int, size: int, stride: int = 1, dilation: int = 1, groups: int = 1
) -> nn.Conv2d:
    padding = dilation * (size // 2)
    return nn.Conv2d(channels_in, channels, size, stride, padding, dilation, groups, bias=False)


def _activated(x: Tensor) -> Tensor:
    return F.relu6(x, inplace=True)
