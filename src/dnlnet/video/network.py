"""The paper's action recognition network: a slow-only ResNet with attention blocks, and a linear classifier."""

# B batch, V views of a video, T frames, H, W size of a frame, K classes

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dnlnet.attention import insert
from dnlnet.backbones import SlowOnly
from dnlnet.errors import unknown
from dnlnet.video.schema import VideoClassifierModel

# Stage -> residual blocks per attention block; layer2 is res3, layer3 is res4. Five blocks in a ResNet-50.
_SPACING: Mapping[str, int] = {"layer2": 2, "layer3": 2}


class VideoClassifier(nn.Module):
    """Classifier of clips.

    Args:
        backbone: Network that the blocks are inserted into. Its last map goes to the classifier.
        classes: Number of classes.
        model: Blocks and their places, and dropout.

    >>> model = VideoClassifier(SlowOnly("slow_only_tiny"), 5, VideoClassifierModel(variant="dnl")).eval()
    >>> model(torch.rand(2, 3, 4, 64, 64)).shape
    torch.Size([2, 5])
    """

    def __init__(self, backbone: SlowOnly, classes: int, model: VideoClassifierModel) -> None:
        super().__init__()
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if model.variant is not None:
            layers = places(backbone, model.placement)
            insert(backbone, dict.fromkeys(layers, model.variant), preset=model.preset, **model.block)
        self.backbone = backbone
        self.dropout = nn.Dropout(model.dropout)
        self.classifier = nn.Linear(backbone.channels[-1], classes)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, clips: Tensor) -> Tensor:
        """Return logits (B, K) of normalised clips (B, 3, T, H, W)."""
        features = self.backbone(clips)[-1].mean(dim=(2, 3, 4))
        logits: Tensor = self.classifier(self.dropout(features))
        return logits


def places(backbone: SlowOnly, placement: Mapping[str, Sequence[int]] | None = None) -> list[str]:
    """Return the names of the residual blocks that are followed by an attention block.

    >>> places(SlowOnly("slow_only_r50"))
    ['layer2.1', 'layer2.3', 'layer3.1', 'layer3.3', 'layer3.5']
    """
    counts = {name: len(stage) for name, stage in backbone.stages.items()}
    if placement is None:
        placement = {stage: range(every - 1, counts[stage], every) for stage, every in _SPACING.items()}
    for stage, numbers in placement.items():
        if stage not in counts:
            raise unknown("stage", stage, counts)
        for number in numbers:
            if not 0 <= number < counts[stage]:
                raise ValueError(
                    f"{stage} of {backbone.name} has no residual block {number}; expected 0..{counts[stage] - 1}"
                )
    found = [f"{stage}.{number}" for stage, numbers in placement.items() for number in numbers]
    if not found:
        raise ValueError(
            f"{backbone.name} with {counts} residual blocks has no default place for a block; "
            "pass placement=, or variant=None for no blocks"
        )
    return found


def view_logits(network: Callable[[Tensor], Tensor], views: Tensor, views_per_batch: int) -> Tensor:
    """Return the logits (V, K) of the views (V, 3, T, H, W) of a video, computed in batches.

    >>> view_logits(lambda clips: clips.mean(dim=(2, 3, 4)), torch.rand(5, 3, 4, 6, 6), views_per_batch=2).shape
    torch.Size([5, 3])
    """
    return torch.cat([network(batch) for batch in views.split(views_per_batch)])
