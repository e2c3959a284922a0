"""Segmentation network: a backbone, a head with the block, and an auxiliary head for training."""

# B batch, C channels, K classes, H, W size of the image, h, w size of a feature map

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.backbones import Backbone

DROPOUT = 0.1
HeadForm = Literal["release", "text"]


class SegmentorOutput(NamedTuple):
    """Logits of the classes at every pixel. The auxiliary head has logits only in training."""

    logits: Tensor  # (B, K, H, W)
    auxiliary: Tensor | None = None  # (B, K, H, W)


class Segmentor(nn.Module):
    """Network that predicts the class of each pixel.

    Args:
        backbone: Source of the maps. The head uses the last map, the auxiliary head the one before it. If the
            backbone has parallel branches (HRNet), the head uses all of them at the size of the finest.
        classes: Number of classes.
        variant: Attention of the block, a row of `dnlnet.VARIANTS`. None leaves the block out (the baseline).
        width: Channels of the head and of the block.
        head: Form of the head (see `ContextHead`). `release`: as in the authors' code, which has the parameters of
            the paper's Table 5. `text`: as in the paper's text (Sec. 5.1).
        fused_width: Channels after the join, which the classifier sees. None: `width`.
        auxiliary: True to add the auxiliary head.
        auxiliary_width: Channels of the auxiliary head. None: `width`.
        auxiliary_bias: True to give the auxiliary convolution a bias, although a batch norm follows.
        head_dilation: Dilation of the 3 x 3 convolutions of both heads before the join.
        auxiliary_dilation: Dilation of the auxiliary head. None: `head_dilation`.
        join_input: True to concatenate the input and the output of the released head before the classifier.
        align_corners: Alignment of interpolation, as in `torch.nn.functional.interpolate`. True suits images whose
            sides are 1 more than a multiple of the stride; False suits whole multiples.
        preset, **options: Preset and options of the block, as for `dnlnet.NonLocalBlock`.

    >>> model = Segmentor(Backbone("resnet18", 16), classes=5, variant="dnl", width=32).eval()
    >>> model(torch.rand(1, 3, 64, 80)).logits.shape
    torch.Size([1, 5, 64, 80])
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        variant: str | None = "dnl",
        *,
        width: int = 512,
        head: HeadForm = "release",
        fused_width: int | None = None,
        auxiliary: bool = True,
        auxiliary_width: int | None = None,
        auxiliary_bias: bool = True,
        head_dilation: int = 1,
        auxiliary_dilation: int | None = None,
        join_input: bool = True,
        align_corners: bool = True,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__()
        if min(classes, width, head_dilation) < 1:
            got = f"classes={classes}, width={width}, head_dilation={head_dilation}"
            raise ValueError(f"classes, width and head_dilation must be at least 1, got {got}")
        if auxiliary and backbone.parallel:
            raise ValueError(f"{backbone.name} has no map before its last to put an auxiliary head on")
        self.backbone, self.align_corners = backbone, align_corners
        channels = sum(backbone.channels) if backbone.parallel else backbone.channels[-1]
        block = None if variant is None else NonLocalBlock(width, variant, preset=preset, **options)
        self.head = ContextHead(channels, width, classes, block, head_dilation, join_input, head, fused_width)
        self.auxiliary = None
        if auxiliary:  # its loss reaches the middle of the backbone directly
            inner, rate = auxiliary_width or width, auxiliary_dilation or head_dilation
            self.auxiliary = nn.Sequential(
                *convolution(backbone.channels[-2], inner, auxiliary_bias, rate),
                nn.Dropout2d(DROPOUT),
                nn.Conv2d(inner, classes, kernel_size=1),
            )

    @property
    def block(self) -> NonLocalBlock | None:
        """The attention block, or None for the baseline."""
        return self.head.block

    def forward(self, images: Tensor) -> SegmentorOutput:
        """Return logits of normalised images (B, 3, H, W)."""
        maps = self.backbone(images)
        size = images.shape[-2:]
        logits = self._resized(self.head(self._last(maps)), size)
        if self.auxiliary is None or not self.training:
            return SegmentorOutput(logits)
        return SegmentorOutput(logits, self._resized(self.auxiliary(maps[-2]), size))

    def _last(self, maps: list[Tensor]) -> Tensor:
        if not self.backbone.parallel:
            return maps[-1]
        finest, *coarser = maps
        return torch.cat([finest, *(self._resized(x, finest.shape[-2:]) for x in coarser)], dim=1)

    def _resized(self, x: Tensor, size: tuple[int, ...]) -> Tensor:
        """Interpolate bilinearly. With `align_corners`, 97 positions at stride 8 span 769 pixels."""
        return F.interpolate(x, size, mode="bilinear", align_corners=self.align_corners)


class ContextHead(nn.Module):
    """Head with the attention block.

    `release`: reduce -> block -> refine -> join with the input -> fuse -> classifier; without `join_input`, no join
    and no fuse. `text`: reduce -> block -> classifier. Both apply dropout before the classifier. Without a block the
    other layers stay, so that a comparison shows the effect of the block alone.
    """

    block: NonLocalBlock | None

    def __init__(
        self,
        channels: int,
        width: int,
        classes: int,
        block: NonLocalBlock | None,
        dilation: int = 1,
        join_input: bool = True,
        head: HeadForm = "release",
        fused_width: int | None = None,
    ) -> None:
        super().__init__()
        joins = head == "release" and join_input
        if fused_width is not None and not joins:
            raise ValueError(
                f"fused_width={fused_width} needs a head that joins its input; leave it out, or use "
                "head='release' with join_input=True"
            )
        last = fused_width or width
        self.reduce = convolution(channels, width, dilation=dilation)
        self.block = block
        self.refine = convolution(width, width, dilation=dilation) if head == "release" else None
        self.fuse = convolution(channels + width, last) if joins else None
        self.dropout = nn.Dropout2d(DROPOUT)
        self.classifier = nn.Conv2d(last, classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, K, h, w) of features (B, C, h, w)."""
        context = self.reduce(x)
        if self.block is not None:
            context = self.block(context)
        if self.refine is not None:
            context = self.refine(context)
        if self.fuse is not None:
            context = self.fuse(torch.cat([x, context], dim=1))
        logits: Tensor = self.classifier(self.dropout(context))
        return logits


def convolution(
    channels_in: int,
    channels_out: int,
    bias: bool = False,
    dilation: int = 1,
    stride: int = 1,
    padding_mode: Literal["zeros", "reflect"] = "zeros",
) -> nn.Sequential:
    """Return a 3 x 3 convolution, batch norm and ReLU."""
    conv = nn.Conv2d(channels_in, channels_out, 3, stride, dilation, dilation, bias=bias, padding_mode=padding_mode)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True))
