"""Exportable detectors, whole or only backbone and feature pyramid: pixels in, tensors out."""

# B batch, H, W size of the image; n objects

from torch import Tensor, nn

from dnlnet.backbones.pixels import normalised
from dnlnet.deployment import Axes, Exportable


class ExportableDetector(Exportable):
    """Detector from one image (3, H, W), which is not resized, to boxes, labels 1..K, scores and masks."""

    takes = Axes("image", (3, "height", "width"))
    outputs = ("boxes", "labels", "scores", "masks")
    traced = True
    remark = (
        "a whole detector is written by PyTorch's older, tracing exporter, because the newer one does not support a "
        "number of objects that depends on the image"
    )

    def __init__(self, network: nn.Module, size: tuple[int, int]) -> None:
        super().__init__(size)
        self.network = network
        self.eval()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return boxes (n, 4), labels (n), scores (n) and masks (n, 1, H, W) in 0..1."""
        (found,) = self.network([image / 255])
        return tuple(found[name] for name in self.outputs)


class ExportablePyramid(Exportable):
    """Network from images (B, 3, H, W), both sides a multiple of 32, to the maps of the feature pyramid."""

    takes = Axes("image", ("batch", 3, "height", "width"))
    outputs = ("p2", "p3", "p4", "p5", "p6")

    def __init__(self, network: nn.Module, size: tuple[int, int]) -> None:
        super().__init__(size)
        self.network = network.get_submodule("backbone")
        self.eval()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the maps from fine to coarse."""
        return tuple(self.network(normalised(image)).values())
