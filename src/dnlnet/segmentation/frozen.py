"""A light head on the features of a frozen backbone, which can be computed once and kept."""

# B batch, C channels, K classes, H, W size of the image, h, w size of the grid

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.backbones import Backbone
from dnlnet.segmentation.network import SegmentorOutput, convolution
from dnlnet.segmentation.stages import Features, cropped, join_stages, resize, whole_features


class FrozenSegmentor(nn.Module):
    """Classes of the pixels of an image from several stages of a backbone: joined, 3 x 3, block, classifier.

    A position of the grid stands for a square of `stride` x `stride` pixels, in training crops and in whole images
    alike.

    Args:
        backbone: whose maps are used; it is not trained, unless a later phase says so.
        classes: number of classes.
        variant: attention of the block, a row of `dnlnet.VARIANTS`; None leaves the block out (the baseline).
        stages: which of the backbone's maps, from 0, fine to coarse; the first one's grid is that of all, or the
            second one's with `detail`.
        width: channels of the head and of the block.
        reduce: bring each stage to so many channels by a 1 x 1 convolution first; None joins them as they are.
        subpixels: the classifier gives so many x so many logits of each class for a position, side by side, which
            are brought to the size of the image linearly; 1 is one for a position.
        detail: channels of a last 3 x 3 convolution on the grid of the first stage, which sees that stage beside what
            came out of the block: for what is a few pixels wide. None joins the first stage with the others.
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
        detail: int | None = None,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__()
        known = range(len(backbone.channels))
        if not stages or list(stages) != sorted(set(stages)) or stages[-1] not in known or stages[0] < 0:
            raise ValueError(f"stages are rising numbers of 0..{known[-1]}, got {list(stages)}")
        self.backbone, self.stages = backbone, tuple(stages)
        self.strides = tuple(backbone.strides[stage] for stage in stages)
        if detail is not None and (len(stages) < 2 or self.strides[1] % self.strides[0]):
            raise ValueError(f"detail needs a first stage that divides the second, got strides {list(self.strides)}")
        self.stride = self.strides[0 if detail is None else 1]
        channels = [backbone.channels[stage] for stage in stages]
        fine = 0 if detail is None else channels.pop(0)
        self.reduce = None if reduce is None else nn.ModuleList(nn.Conv2d(c, reduce, 1) for c in channels)
        self.mix = convolution(sum(channels) if reduce is None else reduce * len(channels), width)
        self.block = None if variant is None else NonLocalBlock(width, variant, preset=preset, **options)
        self.detail = None if detail is None else convolution(width + fine, detail)
        self.classifier = nn.Conv2d(detail or width, classes * subpixels**2, kernel_size=1)
        self.subpixels = subpixels

    def stage_maps(self, images: Tensor) -> list[Tensor]:
        """The map of each stage at its own size."""
        maps: list[Tensor] = self.backbone(images)
        return [maps[stage] for stage in self.stages]

    def forward(self, images: Tensor | Features) -> SegmentorOutput:
        """Logits for normalised (B, 3, H, W) images, or at `stride` times the size of the grid of features."""
        if isinstance(images, Features):
            return SegmentorOutput(self._logits(images))
        logits = self._logits(whole_features(self.stage_maps(images), detail=self.detail is not None))
        return SegmentorOutput(cropped(logits, *images.shape[-2:]))

    def _logits(self, features: Features) -> Tensor:
        """(B, K, stride h, stride w)."""
        maps = [x.to(self.classifier.weight.dtype) for x in features.maps]
        if self.reduce is not None:  # before they are joined: the coarse ones have few positions
            maps = [reduce(x) for reduce, x in zip(self.reduce, maps, strict=True)]
        mixed = self.mix(join_stages(Features(maps, features.weights)))
        if self.block is not None:
            mixed = self.block(mixed)
        height, width = mixed.shape[-2:]
        if self.detail is not None:
            mixed = self._add_detail(mixed, features.detail[0].to(mixed.dtype))
        logits = F.pixel_shuffle(self.classifier(mixed), self.subpixels)
        return self._resized(logits, (height * self.stride, width * self.stride))

    def _add_detail(self, mixed: Tensor, fine: Tensor) -> Tensor:
        """What came out of the block on the finer grid, beside the finer map."""
        assert self.detail is not None
        ratio = self.strides[1] // self.strides[0]
        height, width = mixed.shape[-2] * ratio, mixed.shape[-1] * ratio
        fine = cropped(F.pad(fine, (0, ratio - 1, 0, ratio - 1)), height, width)  # the coarse grid is rounded up
        detailed: Tensor = self.detail(torch.cat([self._resized(mixed, (height, width)), fine], dim=1))
        return detailed

    def _resized(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        if self.training:
            return resize(x, size)
        return F.interpolate(x, size, mode="bilinear", align_corners=False)
