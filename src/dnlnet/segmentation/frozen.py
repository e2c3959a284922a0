"""Light head on the features of a frozen backbone, which can be computed once and cached."""

# B batch, C channels, K classes, H, W size of the image, h, w size of the grid

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.backbones import Backbone
from dnlnet.segmentation.network import SegmentorOutput, convolution
from dnlnet.segmentation.stages import Features, Grid, cropped, join_stages, resize


class FrozenSegmentor(nn.Module):
    """Segmentation network: joined backbone stages -> 3 x 3 convolution -> block -> classifier.

    Each grid position covers `stride` x `stride` pixels, in training crops and in whole images.

    Args:
        backbone: Source of the maps. It stays frozen unless a later phase trains it.
        classes: Number of classes.
        variant: Attention of the block, a row of `dnlnet.VARIANTS`. None leaves the block out (the baseline).
        stages: Indices of the backbone's maps, from 0, fine to coarse. All maps are brought to the grid of the first
            one, or of the second one with `detail`.
        width: Channels of the head and of the block.
        reduce: Channels of a 1 x 1 convolution on each stage before they are joined. None leaves it out.
        subpixels: Side of the square of logits that the classifier predicts per class and grid position. Logits are
            then interpolated linearly to the size of the image.
        detail: Channels of a last 3 x 3 convolution on the grid of the first stage. It sees that stage and the
            output of the block, and helps with objects a few pixels wide. None joins the first stage with the others.
        preset, **options: Preset and options of the block, as for `dnlnet.NonLocalBlock`.

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
        strides = tuple(backbone.strides[stage] for stage in stages)
        if detail is not None and (len(stages) < 2 or strides[1] % strides[0]):
            raise ValueError(f"detail needs a first stage that divides the second, got strides {list(strides)}")
        self.grid = Grid(strides, detail is not None)
        channels = [backbone.channels[stage] for stage in stages]
        fine = 0 if detail is None else channels.pop(0)
        self.reduce = None if reduce is None else nn.ModuleList(nn.Conv2d(c, reduce, 1) for c in channels)
        self.mix = convolution(sum(channels) if reduce is None else reduce * len(channels), width)
        self.block = None if variant is None else NonLocalBlock(width, variant, preset=preset, **options)
        self.detail = None if detail is None else convolution(width + fine, detail)
        self.classifier = nn.Conv2d(detail or width, classes * subpixels**2, kernel_size=1)
        self.subpixels = subpixels

    def stage_maps(self, images: Tensor) -> list[Tensor]:
        """Return the map of each stage at its own size."""
        maps: list[Tensor] = self.backbone(images)
        return [maps[stage] for stage in self.stages]

    def forward(self, images: Tensor | Features) -> SegmentorOutput:
        """Return logits (B, K, H, W) of normalised images (B, 3, H, W), or (B, K, stride h, stride w) of features."""
        if isinstance(images, Features):
            return SegmentorOutput(self._logits(images))
        logits = self._logits(self.grid.whole(self.stage_maps(images)))
        return SegmentorOutput(cropped(logits, *images.shape[-2:]))

    def _logits(self, features: Features) -> Tensor:
        """Return logits (B, K, stride h, stride w)."""
        maps = [x.to(self.classifier.weight.dtype) for x in features.maps]
        if self.reduce is not None:  # before joining, while the coarse maps still have few positions
            maps = [reduce(x) for reduce, x in zip(self.reduce, maps, strict=True)]
        mixed = self.mix(join_stages(Features(maps, features.weights)))
        if self.block is not None:
            mixed = self.block(mixed)
        height, width = mixed.shape[-2:]
        if self.detail is not None:
            mixed = self._add_detail(mixed, features.detail[0].to(mixed.dtype))
        logits = F.pixel_shuffle(self.classifier(mixed), self.subpixels)
        return self._resized(logits, (height * self.grid.stride, width * self.grid.stride))

    def _add_detail(self, mixed: Tensor, fine: Tensor) -> Tensor:
        """Join the output of the block with the finer map, on the finer grid."""
        assert self.detail is not None
        ratio = self.grid.stride // self.grid.strides[0]
        height, width = mixed.shape[-2] * ratio, mixed.shape[-1] * ratio
        fine = cropped(F.pad(fine, (0, ratio - 1, 0, ratio - 1)), height, width)  # the coarse grid is rounded up
        detailed: Tensor = self.detail(torch.cat([self._resized(mixed, (height, width)), fine], dim=1))
        return detailed

    def _resized(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        if self.training:
            return resize(x, size)
        return F.interpolate(x, size, mode="bilinear", align_corners=False)
