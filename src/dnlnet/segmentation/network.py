"""The segmentation network: a backbone, a head around the block, and a second head to train with."""

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
    """Logits of the classes at every pixel; those of the auxiliary head only in training."""

    logits: Tensor  # (B, K, H, W)
    auxiliary: Tensor | None = None  # (B, K, H, W)


class Segmentor(nn.Module):
    """Classes of the pixels of an image.

    Args:
        backbone: its last map goes to the head, the last but one to the auxiliary head; of parallel branches, as
            HRNet has them, all go to the head, brought to the size of the finest.
        classes: number of classes.
        variant: attention of the block, a row of `dnlnet.VARIANTS`; None leaves the block out (the baseline).
        width: channels inside the head; the block works on as many.
        head: form of the head. `release`: of the authors' code, which has the parameters of the paper's Table 5.
            `text`: as described in the paper's text (Sec. 5.1); see `ContextHead`.
        fused_width: channels after the join, which the classifier reads; None takes `width`.
        auxiliary: have the auxiliary head.
        auxiliary_width: channels inside it; None takes `width`.
        auxiliary_bias: give its convolution a bias, though a batch norm follows.
        dilation: of the 3 x 3 convolutions of both heads before the join.
        auxiliary_dilation: of the auxiliary head, if it has another.
        join_input: join what the released head makes with what came in; False classifies the former alone.
        align_corners: resize with corners on corners, which suits images whose sides are 1 more than a multiple of
            the stride; False, with the borders of pixels on borders, suits whole multiples.
        preset, **options: of the block, as for `dnlnet.NonLocalBlock`.

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
        dilation: int = 1,
        auxiliary_dilation: int | None = None,
        join_input: bool = True,
        align_corners: bool = True,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__()
        if min(classes, width, dilation) < 1:
            got = f"classes={classes}, width={width}, dilation={dilation}"
            raise ValueError(f"classes, width and dilation must be at least 1, got {got}")
        if auxiliary and backbone.parallel:
            raise ValueError(f"{backbone.name} has no map before its last to put an auxiliary head on")
        self.backbone, self.align_corners = backbone, align_corners
        channels = sum(backbone.channels) if backbone.parallel else backbone.channels[-1]
        block = None if variant is None else NonLocalBlock(width, variant, preset=preset, **options)
        self.head = ContextHead(channels, width, classes, block, dilation, join_input, head, fused_width)
        inner, rate = auxiliary_width or width, auxiliary_dilation or dilation
        self.auxiliary = (
            AuxiliaryHead(backbone.channels[-2], inner, classes, auxiliary_bias, rate) if auxiliary else None
        )

    @property
    def block(self) -> NonLocalBlock | None:
        """The attention block, if there is one."""
        return self.head.block

    def forward(self, images: Tensor) -> SegmentorOutput:
        """Logits for normalised (B, 3, H, W) images."""
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
        """Bilinear; with corners on corners, the 97 positions of 769 pixels at stride 8 end on the border."""
        return F.interpolate(x, size, mode="bilinear", align_corners=self.align_corners)


class ContextHead(nn.Module):
    """`release`: reduce -> block -> refine, joined with what came in -> fuse -> classifier.

    `text`: reduce -> block -> classifier. Dropout is before both classifiers. Without a block the rest stays, so that
    a comparison shows the block alone. Without `join_input` there is no fuse.
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
        """(B, K, h, w) logits of (B, C, h, w) features."""
        context = self.reduce(x)
        if self.block is not None:
            context = self.block(context)
        if self.refine is not None:
            context = self.refine(context)
        if self.fuse is not None:
            context = self.fuse(torch.cat([x, context], dim=1))
        logits: Tensor = self.classifier(self.dropout(context))
        return logits


class AuxiliaryHead(nn.Sequential):
    """A convolution and a classifier, whose loss reaches the middle of the backbone directly."""

    def __init__(self, channels: int, width: int, classes: int, bias: bool = True, dilation: int = 1) -> None:
        super().__init__(
            *convolution(channels, width, bias, dilation),
            nn.Dropout2d(DROPOUT),
            nn.Conv2d(width, classes, kernel_size=1),
        )


def convolution(channels_in: int, channels_out: int, bias: bool = False, dilation: int = 1) -> nn.Sequential:
    """3 x 3, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=dilation, dilation=dilation, bias=bias),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )
