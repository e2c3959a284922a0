"""Classifier of clips on the features of their frames, from a frozen image backbone that can be computed once."""

# B batch, T frames, H, W size of a frame, C channels, h, w size of a map, K classes

from typing import NamedTuple

from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.backbones import Backbone
from dnlnet.video.schema import FrozenModel


class Features(NamedTuple):
    """Last map of the backbone for each frame of some clips, (B, C, T, h, w)."""

    maps: Tensor


class FrozenClassifier(nn.Module):
    """Classifier: map of each frame -> convolution over time -> block over space and time -> mean -> linear layer.

    Args:
        backbone: Image network, applied frame by frame. It stays frozen.
        classes: Number of classes.
        model: Width, block and dropout.

    >>> import torch
    >>> model = FrozenClassifier(Backbone("resnet18", 32), 5, FrozenModel(variant="dnl", width=16)).eval()
    >>> model(torch.rand(2, 3, 4, 64, 96)).shape
    torch.Size([2, 5])
    >>> model(Features(torch.rand(2, 512, 4, 2, 3))).shape
    torch.Size([2, 5])
    """

    def __init__(self, backbone: Backbone, classes: int, model: FrozenModel) -> None:
        super().__init__()
        width = model.width
        self.backbone = backbone
        self.mix = nn.Sequential(
            nn.Conv3d(backbone.channels[-1], width, (3, 1, 1), padding=(1, 0, 0), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
        )
        self.block: NonLocalBlock | None = None
        if model.variant is not None:
            self.block = NonLocalBlock(width, model.variant, dims=3, preset=model.preset, **model.block)
        self.dropout = nn.Dropout(model.dropout)
        self.classifier = nn.Linear(width, classes)

    def features(self, clips: Tensor) -> Features:
        """Return the features of normalised clips (B, 3, T, H, W)."""
        batch, _, frames, height, width = clips.shape
        maps = self.backbone(clips.transpose(1, 2).reshape(batch * frames, 3, height, width))[-1]
        return Features(maps.reshape(batch, frames, *maps.shape[1:]).transpose(1, 2))

    def forward(self, clips: Tensor | Features) -> Tensor:
        """Return logits (B, K) of normalised clips (B, 3, T, H, W), or of features."""
        maps = (clips if isinstance(clips, Features) else self.features(clips)).maps
        mixed = self.mix(maps.to(self.classifier.weight.dtype))
        if self.block is not None:
            mixed = self.block(mixed)
        logits: Tensor = self.classifier(self.dropout(mixed.mean(dim=(2, 3, 4))))
        return logits
