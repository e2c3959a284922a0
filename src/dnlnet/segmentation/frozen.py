"""A light head on the features of a frozen backbone, which can be computed once and kept."""

# B batch, C channels, K classes, H, W size of the image, h, w size of the grid

from collections.abc import Sequence
from typing import Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.attention.spec import Options
from dnlnet.backbones import Backbone
from dnlnet.segmentation.network import SegmentorOutput
from dnlnet.segmentation.stages import Features, join_stages, resize


class FrozenSegmentor(nn.Module):
    """Classes of the pixels of an image from several stages of a backbone: joined, 3 x 3, block, classifier.

    A position of the grid stands for a square of `stride` x `stride` pixels, in training crops and in whole images
    alike.

    Args:
        backbone: whose maps are used; it is not trained, unless a later phase says so.
        classes: number of classes.
        variant: attention of the block, a row of `dnlnet.VARIANTS`; None leaves the block out (the baseline).
        stages: which of the backbone's maps, from 0, fine to coarse; the first one's grid is that of all.
        width: channels of the head and of the block.
        reduce: bring each stage to so many channels by a 1 x 1 convolution first; None joins them as they are.
        subpixels: the classifier gives so many x so many logits of each class for a position, side by side, which
            are brought to the size of the image linearly; 1 is one for a position.
        preset, **options: of the block, as for `dnlnet.NonLocalBlock`.

    >>> import torch
    >>> model = FrozenSegmentor(Backbone("resnet18", 32), classes=5, variant="dnl", stages=(1, 2, 3), width=16).eval()
    >>> model(torch.rand(1, 3, 60, 90)).logits.shape
    torch.Size([1, 5, 60, 90])
    >>> model(Features(model.stage_maps(torch.rand(1, 3, 60, 90)))).logits.shape
    torch.Size([1, 5, 64, 96])
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        variant: str | None = "dnl",
        *,
        stages: Sequence[int] = (1, 2, 3),
        width: int = 128,
        reduce: int | None = None,
        subpixels: int = 1,
        preset: str = "paper",
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        known = range(len(backbone.channels))
        if not stages or list(stages) != sorted(set(stages)) or stages[-1] not in known or stages[0] < 0:
            raise ValueError(f"stages are rising numbers of 0..{known[-1]}, got {list(stages)}")
        self.backbone, self.stages = backbone, tuple(stages)
        self.strides = tuple(backbone.strides[stage] for stage in stages)
        self.stride = self.strides[0]
        self.channels = tuple(backbone.channels[stage] for stage in stages)
        self.reduce = None if reduce is None else nn.ModuleList(nn.Conv2d(c, reduce, 1) for c in self.channels)
        joined = sum(self.channels) if reduce is None else reduce * len(self.channels)
        self.mix = nn.Sequential(
            nn.Conv2d(joined, width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.block = None if variant is None else NonLocalBlock(width, variant, preset=preset, **options)
        self.classifier = nn.Conv2d(width, classes * subpixels**2, kernel_size=1)
        self.subpixels = subpixels

    def stage_maps(self, images: Tensor) -> list[Tensor]:
        """The map of each stage at its own size."""
        maps: list[Tensor] = self.backbone(images)
        return [maps[stage] for stage in self.stages]

    def forward(self, images: Tensor | Features) -> SegmentorOutput:
        """Logits for normalised (B, 3, H, W) images, or at `stride` times the size of the finest map of features."""
        if isinstance(images, Features):
            return SegmentorOutput(self._logits(images))
        logits = self._logits(Features(self.stage_maps(images)))
        return SegmentorOutput(logits[..., : images.shape[-2], : images.shape[-1]])

    def _logits(self, features: Features) -> Tensor:
        """(B, K, stride h, stride w)."""
        maps = [x.to(self.classifier.weight.dtype) for x in features.maps]
        if self.reduce is not None:  # before they are joined: the coarse ones have few positions
            maps = [reduce(x) for reduce, x in zip(self.reduce, maps, strict=True)]
        mixed = self.mix(join_stages(Features(maps, features.weights)))
        if self.block is not None:
            mixed = self.block(mixed)
        height, width = mixed.shape[-2:]
        size = (height * self.stride, width * self.stride)
        logits = F.pixel_shuffle(self.classifier(mixed), self.subpixels)
        if self.training:
            return resize(logits, size)
        return F.interpolate(logits, size, mode="bilinear", align_corners=False)
