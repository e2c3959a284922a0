"""Smallest network in which a non-local block is useful."""

# B batch, C classes, H, W size of the image

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.segmentation.network import SegmentorOutput, convolution


class TinySegmentor(nn.Module):
    """Four convolutions, a non-local block and a classifier. Before the block, a position sees 23 x 23 pixels.

    Args:
        classes: Number of classes.
        width: Channels of the first convolution. The block has twice as many.
        variant: Attention of the block, a row of `dnlnet.VARIANTS`. None leaves the block out.
        preset, **options: Preset and options of the block, as for `dnlnet.NonLocalBlock`.

    >>> import torch
    >>> model = TinySegmentor(classes=6)
    >>> images = torch.rand(2, 3, 48, 64)
    >>> model(images).logits.shape
    torch.Size([2, 6, 48, 64])
    """

    def __init__(
        self,
        classes: int,
        width: int = 32,
        variant: str | None = "dnl",
        *,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__()
        if classes < 1 or width < 1:
            raise ValueError(f"classes and width must be at least 1, got classes={classes}, width={width}")
        self.features = nn.Sequential(
            convolution(3, width, stride=2, padding_mode="reflect"),
            convolution(width, 2 * width, stride=2, padding_mode="reflect"),
            convolution(2 * width, 2 * width, padding_mode="reflect"),
            convolution(2 * width, 2 * width, padding_mode="reflect"),
        )
        self.block = None if variant is None else _block(2 * width, variant, preset, options)
        self.classifier = nn.Conv2d(2 * width, classes, kernel_size=1)

    def forward(self, images: Tensor) -> SegmentorOutput:
        """Return logits (B, C, H, W) of images (B, 3, H, W)."""
        x = self.features(images)
        if self.block is not None:
            x = self.block(x)
        logits = self.classifier(x)
        return SegmentorOutput(F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False))


def _block(channels: int, variant: str, preset: str, options: Mapping[str, Any]) -> NonLocalBlock:
    """Return a block whose query and key start equal, so that each position first attends to similar positions.

    With independent weights, a network this small learns to attend to contrasting positions just as often.
    """
    block = NonLocalBlock(channels, variant, preset=preset, **options)
    if block.query is not None and block.key is not None:
        nn.init.normal_(block.query.weight, std=0.05)
        block.key.load_state_dict(block.query.state_dict())
    return block
