"""Video backbones: ResNets inflated in time, initialised from image networks."""

# B batch, T frames, H, W size of a frame

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from dnlnet.backbones.rows import VIDEO_BACKBONES
from dnlnet.errors import unknown

EXPANSION = 4  # output channels of a bottleneck over its width
TEMPORAL_KERNELS = (1, 1, 3, 3)  # in the first convolution of the bottlenecks of res2, res3, res4 and res5


class SlowOnly(nn.Module):
    """Network that returns four feature maps of a clip, from fine to coarse in space, each with all frames.

    It is the slow pathway of SlowFast: a ResNet applied frame by frame, except that in the last two stages the first
    convolution of each bottleneck spans three frames. Parameters have the names of the image ResNet; `inflate`
    converts its weights.

    Args:
        name: Name of a row of `VIDEO_BACKBONES`.
        layers, width: Values that replace those of the row.
        stride_in_1x1: Put the stride of a bottleneck in its first 1 x 1 convolution instead of the 3 x 3 one. Weights
            converted from Caffe need this.
        zero_init: Initialise the last norm of every bottleneck to zero, like SlowFast, so that each bottleneck starts
            as the identity.

    >>> import torch
    >>> backbone = SlowOnly("slow_only_tiny")
    >>> backbone.channels, backbone.strides
    ((32, 64, 128, 256), (4, 8, 16, 32))
    >>> [tuple(x.shape[1:]) for x in backbone(torch.rand(1, 3, 4, 64, 96))]
    [(32, 4, 16, 24), (64, 4, 8, 12), (128, 4, 4, 6), (256, 4, 2, 3)]
    >>> backbone.places[-1]
    'layer4.0'
    """

    strides = (4, 8, 16, 32)  # in space; there is no stride in time

    def __init__(
        self,
        name: str = "slow_only_r50",
        *,
        layers: Sequence[int] | None = None,
        width: int | None = None,
        stride_in_1x1: bool = False,
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if name not in VIDEO_BACKBONES:
            raise unknown("video backbone", name, VIDEO_BACKBONES)
        row = VIDEO_BACKBONES[name]
        layers = row.layers if layers is None else tuple(layers)
        width = row.width if width is None else width
        if len(layers) != len(self.strides) or min(*layers, width) < 1:
            raise ValueError(f"expected four stages of at least one layer and one channel, got {layers} of {width}")
        self.name = name
        self.channels = tuple(EXPANSION * width * 2**stage for stage in range(4))
        self.conv1 = _convolution(3, width, (1, 7, 7), stride=2)
        self.bn1 = nn.BatchNorm3d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        channels = width
        for stage, (count, frames) in enumerate(zip(layers, TEMPORAL_KERNELS, strict=True)):
            blocks = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(channels, width * 2**stage, stride, frames, stride_in_1x1))
                channels = self.channels[stage]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.reset_parameters(zero_init)

    def reset_parameters(self, zero_init: bool = True) -> None:
        """Draw convolutions from He's normal distribution; set norms to one, or to zero before an addition."""
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm3d):
                module.reset_parameters()
        for module in self.modules():
            if zero_init and isinstance(module, Bottleneck):
                nn.init.zeros_(module.bn3.weight)

    def forward(self, clips: Tensor) -> list[Tensor]:
        """Return the feature maps of (B, 3, T, H, W) clips, with `channels` and `strides`."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(clips))))
        maps = []
        for stage in self.stages.values():
            x = stage(x)
            maps.append(x)
        return maps

    @property
    def stages(self) -> dict[str, nn.Sequential]:
        """Return the stages res2 to res5 by their names, layer1 to layer4."""
        return {name: stage for name, stage in self.named_children() if isinstance(stage, nn.Sequential)}

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the residual blocks after which `dnlnet.insert` can add an attention block."""
        return tuple(name for name, module in self.named_modules() if isinstance(module, Bottleneck))


class Bottleneck(nn.Module):
    """Residual block: t x 1 x 1 down to the width, 1 x 3 x 3, 1 x 1 x 1 up to four times the width.

    Args:
        channels: Number of input channels.
        width: Number of channels between the convolutions.
        stride: Spatial stride.
        frames: Temporal size t of the first convolution.
        stride_in_1x1: Put the stride in the first convolution instead of the second.
    """

    def __init__(self, channels: int, width: int, stride: int, frames: int, stride_in_1x1: bool) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_in_1x1 else (1, stride)
        self.conv1 = _convolution(channels, width, (frames, 1, 1), first)
        self.bn1 = nn.BatchNorm3d(width)
        self.conv2 = _convolution(width, width, (1, 3, 3), second)
        self.bn2 = nn.BatchNorm3d(width)
        self.conv3 = _convolution(width, EXPANSION * width, (1, 1, 1))
        self.bn3 = nn.BatchNorm3d(EXPANSION * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride > 1 or channels != EXPANSION * width:
            self.downsample = nn.Sequential(
                _convolution(channels, EXPANSION * width, (1, 1, 1), stride), nn.BatchNorm3d(EXPANSION * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + f(x)), with x projected if f(x) has another shape."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        result: Tensor = self.relu(y)
        return result


def inflate(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Convert an image network's weights for a video network: W_t = W / T for each of T slices in time.

    A static clip then has the features of its image, except where a convolution reaches beyond the first or last
    frame. Tensors that already fit the model stay unchanged.

    >>> import torch
    >>> image, video = nn.Conv2d(3, 8, 1), nn.Conv3d(3, 8, (3, 1, 1))
    >>> state = inflate(image.state_dict(), video)
    >>> state["weight"].shape, torch.allclose(state["weight"].sum(2), image.weight)
    (torch.Size([8, 3, 3, 1, 1]), True)
    """
    own = model.state_dict()
    return {name: _inflate_weight(tensor, own[name]) if name in own else tensor for name, tensor in state.items()}


def _inflate_weight(weight: Tensor, like: Tensor) -> Tensor:
    if weight.dim() != 4 or like.dim() != 5:
        return weight
    frames = like.shape[2]
    # Divide in the model's precision, because thirds of half-precision weights would not add up.
    return (weight.to(like.dtype) / frames).unsqueeze(2).repeat(1, 1, frames, 1, 1)


def _convolution(channels_in: int, channels_out: int, kernel: tuple[int, int, int], stride: int = 1) -> nn.Conv3d:
    """Build a convolution with a spatial stride and the padding that keeps the size at stride 1."""
    frames, height, width = (size // 2 for size in kernel)
    return nn.Conv3d(
        channels_in, channels_out, kernel, (1, stride, stride), padding=(frames, height, width), bias=False
    )
