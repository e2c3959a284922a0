"""Model and data settings of detection recipes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dnlnet.data.images import HeightWidth
from dnlnet.fields import Flag, Fraction, PositiveFloat, SmallInt, Text
from dnlnet.recipes.model import BackboneModel
from dnlnet.recipes.recipe import DataPart

MOST_DETECTED = 2**25  # pixels of a resized image; those of COCO have 2^20


class DetectorModel(BackboneModel):
    """Model settings."""

    backbone: str = "resnet50"
    preset: str = "authors_detection"
    placement: Literal["c4_one", "c5_all", "c4_one_c5_all", "c4c5_all"] = "c4_one"
    after_activation: Flag = False  # blocks after, not before, the last activation of their residual blocks
    boxes: SmallInt = 512  # per image, that the heads are trained on
    proposals: SmallInt = 1000  # per image, in testing; twice as many in training, to choose boxes from
    width: SmallInt = 256  # channels of the pyramid and of the heads' convolutions
    box_convolutions: Annotated[int, Field(strict=True, ge=0, le=16)] = 4
    box_width: SmallInt = 1024  # channels of the box head's linear layer
    mask_convolutions: Annotated[int, Field(strict=True, ge=1, le=16)] = 4
    frozen: Flag = False  # freeze everything below the first block, and train on its features
    # Side of the smallest anchors in pixels, doubled by each pyramid level. 32 suits images of about 800 pixels.
    anchor: Annotated[int, Field(strict=True, ge=1, le=4096)] = 32
    # Training settings (see `dnlnet.detection.heads`). Defaults are torchvision's, which recipes stored before these
    # settings existed used; the authors' code has 1.0, False and 0.3.
    box_beta: PositiveFloat = 1 / 9  # of the smooth L1 loss of boxes
    border_anchors: Flag = True  # also train on anchors that cross the image's border
    min_overlap: Fraction = 0.0  # minimum IoU of an object with its best anchor for that anchor to be positive


class InstanceData(DataPart):
    """Data set, its splits, and the size of resized images."""

    name: Text = "coco"
    train: Text = "train2017"
    test: Text | None = "val2017"
    short_side: SmallInt = 800
    long_side: SmallInt = 1333
    flip: Fraction = 0.5

    @model_validator(mode="after")
    def _sides_fit(self) -> Self:
        if self.long_side < self.short_side:
            raise ValueError(f"a long_side of {self.long_side} is shorter than a short_side of {self.short_side}")
        if self.short_side * self.long_side > MOST_DETECTED:
            raise ValueError(
                f"short_side x long_side is {self.short_side} x {self.long_side}, more than {MOST_DETECTED:,} "
                "pixels; lower one of them"
            )
        return self

    def resized(self, size: HeightWidth) -> HeightWidth:
        """Scale a size to a shorter side of `short_side`, or less if the longer side would exceed `long_side`.

        >>> InstanceData().resized((480, 640)), InstanceData().resized((200, 640))
        ((800, 1067), (417, 1333))
        """
        scale = min(self.short_side / min(size), self.long_side / max(size))
        return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
