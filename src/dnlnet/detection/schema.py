"""Model and data settings of detection recipes."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from dnlnet.fields import Flag, Fraction, PositiveFloat, SmallInt, Text
from dnlnet.progress import Progress
from dnlnet.recipes.model import BackboneModel
from dnlnet.recipes.recipe import DataPart

if TYPE_CHECKING:
    from dnlnet.detection.network import Detector

OUTPUT_STRIDE = 32
MOST_DETECTED = 2**25  # pixels of a resized image; those of COCO have 2^20


class DetectorModel(BackboneModel):
    """Model settings (see `dnlnet.detection.network.Detector`)."""

    backbone: str = "resnet50"
    preset: str = "authors_detection"
    placement: Literal["c4_one", "c5_all", "c4_one_c5_all", "c4c5_all"] = "c4_one"
    after_activation: Flag = False
    boxes: SmallInt = 512  # per image, that the heads are trained on
    proposals: SmallInt = 1000  # per image, in testing
    anchor: Annotated[int, Field(strict=True, ge=1, le=4096)] = 32  # side of the smallest anchors in pixels
    # Defaults are torchvision's, which recipes stored before these settings existed used.
    box_beta: PositiveFloat = 1 / 9  # of the smooth L1 loss of boxes
    border_anchors: Flag = True  # also train on anchors that cross the image's border
    min_overlap: Fraction = 0.0  # minimum IoU of an object with its best anchor for that anchor to be positive

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "Detector":
        """Build the detector."""
        from dnlnet.detection.network import Detector
        from dnlnet.recipes.backbone import build_backbone

        return Detector(
            build_backbone(self, OUTPUT_STRIDE, pretrained, progress),
            classes,
            self.variant,
            self.placement,
            after_activation=self.after_activation,
            boxes=self.boxes,
            proposals=self.proposals,
            anchor=self.anchor,
            box_beta=self.box_beta,
            border_anchors=self.border_anchors,
            min_overlap=self.min_overlap,
            preset=self.preset,
            **self.block,
        )


class InstanceData(DataPart):
    """Data set, its splits, and the size of resized images."""

    name: Text = "coco"
    train: Text = "train2017"
    test: Text | None = "val2017"
    short_side: SmallInt = 800
    long_side: SmallInt = 1333
    flip: Fraction = 0.5

    @model_validator(mode="after")
    def _long_is_longer(self) -> Self:
        if self.long_side < self.short_side:
            raise ValueError(f"a long_side of {self.long_side} is shorter than a short_side of {self.short_side}")
        return self

    @model_validator(mode="after")
    def _images_fit_memory(self) -> Self:
        if self.short_side * self.long_side > MOST_DETECTED:
            raise ValueError(
                f"short_side x long_side is {self.short_side} x {self.long_side}, more than {MOST_DETECTED:,} "
                "pixels; lower one of them"
            )
        return self
