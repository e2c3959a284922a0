"""What a segmentation recipe says."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from dnlnet.data.transforms import Augmentation
from dnlnet.errors import shown
from dnlnet.fields import (
    Count,
    Dilation,
    Few,
    Flag,
    Index,
    InnerShare,
    OutputStride,
    Part,
    Positive,
    Scale,
    Share,
    Size,
    Weight,
)
from dnlnet.recipes.schema import DataPart, Model, Recipe, require_rising
from dnlnet.segmentation.data.views import View
from dnlnet.segmentation.sources import SOURCES

if TYPE_CHECKING:
    from dnlnet.segmentation.inference import Inference


class SegmentorModel(Model):
    """A segmentation network."""

    network: Literal["segmentor", "tiny", "frozen"] = "segmentor"
    backbone: str = "resnet101s"
    output_stride: OutputStride | None = 8
    dilations: tuple[tuple[Dilation, ...], ...] | None = None  # None is what the output stride asks for
    head_dilation: Dilation = 1
    auxiliary_dilation: Dilation | None = None  # None is that of the head
    join_input: Flag = True  # the released head joins what came in with what it made of it
    head: Literal["release", "text"] = "release"  # as in the authors' code, or as the paper's text describes it
    block: Mapping[str, Any] = {"gate": "scalar"}
    width: Few = 512
    fused_width: Few | None = None  # channels of the head after the join; None is its width
    auxiliary: Flag = True
    auxiliary_width: Few | None = None  # None is that of the head
    auxiliary_bias: Flag = True
    align_corners: Flag = True
    stages: tuple[Index, ...] = (1, 2, 3)  # of a frozen backbone, that the head looks at
    reduce: Few | None = None  # channels that each of them is brought to first
    subpixels: Annotated[int, Field(strict=True, ge=1, le=32)] = 1  # logits along a side of each of its positions
    detail: Few | None = None  # channels of a convolution after the block that sees the first stage, on its grid

    @model_validator(mode="after")
    def _a_fused_width_needs_a_join(self) -> Self:
        joins = self.network == "segmentor" and self.head == "release" and self.join_input
        if self.fused_width is not None and not joins:
            raise ValueError(
                f"fused_width={self.fused_width} is of a head that joins its input: network=segmentor with "
                "head=release and join_input=true; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _tiny_has_no_backbone(self) -> Self:
        for name, usual in {"weights": None, "dilations": None, "head_dilation": 1, "pixels": None}.items():
            if self.network == "tiny" and getattr(self, name) != usual:
                raise ValueError(f"the tiny network has no backbone to use {name}={shown(getattr(self, name))}")
        return self


class Data(DataPart):
    """A data set, its splits, and how crops of it are drawn for training."""

    crop: Size
    scales: tuple[Scale, Scale] = (0.5, 2.0)
    aspects: tuple[Scale, Scale] = (1.0, 1.0)
    short_side: Few | None = None
    flip: Share = 0.5
    brightness: Annotated[int, Field(strict=True, ge=0, le=255)] = 10
    # Scales that features of a frozen backbone are computed at, with a flip if there is one.
    views: Annotated[tuple[Scale, ...], Field(max_length=20)] = ()

    @field_validator("scales", "aspects")
    @classmethod
    def _from_low_to_high(cls, ends: tuple[float, float]) -> tuple[float, float]:
        return require_rising(ends)

    def feature_views(self) -> list[View]:
        """The views that features of each picture are computed in."""
        return [
            View(scale, flipped) for scale in self.views for flipped in ((False, True) if self.flip else (False,))
        ]

    def augmentation(self) -> Augmentation:
        """How crops are drawn."""
        return Augmentation(self.crop, self.scales, self.aspects, self.short_side, self.flip, self.brightness)


class Ohem(Part):
    """Hard pixels: those with p(true class) below `threshold`, and at least `kept` per image of a process's batch."""

    threshold: InnerShare = 0.7
    kept: Count = 100_000


class Loss(Part):
    """Cross-entropy with its options."""

    ohem: Ohem | None = None
    class_weights: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=65_536)] | None = None
    auxiliary_weight: Weight = 0.5


class Evaluation(Part):
    """How the network is tested."""

    window: Size | None = None  # None looks at whole images
    stride: Size | None = None
    short_side: Few | None = None
    long_side: Few | None = None  # limit of the longer side at that size
    scales: Annotated[tuple[Scale, ...], Field(min_length=1, max_length=100)] = (1.0,)
    flip: Flag = False
    divisor: Few = 1  # pad images to a multiple, with what the network sees as 0
    image_corners: Flag | None = None  # resize images with corners on corners; None does it as the network does

    @model_validator(mode="after")
    def _a_limit_needs_a_size(self) -> Self:
        if self.long_side is not None and self.short_side is None:
            raise ValueError(f"long_side={self.long_side} limits images that are resized; give short_side too")
        return self

    @model_validator(mode="after")
    def _windows_leave_no_gaps(self) -> Self:
        if (self.window is None) != (self.stride is None):
            raise ValueError("windows need a size and a stride: give both window and stride, or none")
        if self.window is not None and self.stride is not None:
            for step, length in zip(self.stride, self.window, strict=True):
                if step > length:
                    raise ValueError(f"a stride of {step} leaves gaps between windows of {length}")
        return self

    def inference(self, model: SegmentorModel) -> "Inference":
        """Return how images are fed to the network of this model."""
        from dnlnet.segmentation.inference import Inference

        return Inference(
            window=self.window,
            stride=self.stride,
            short_side=self.short_side,
            long_side=self.long_side,
            scales=self.scales,
            flip=self.flip,
            align_corners=model.align_corners,
            image_corners=self.image_corners,
            divisor=self.divisor,
            fill=model.network_pixels().zero(),
        )


class SegmentationRecipe(Recipe):
    """Classes of pixels."""

    task: Literal["segmentation"] = "segmentation"
    model: SegmentorModel
    data: Data
    loss: Loss = Loss()
    evaluation: Evaluation = Evaluation()
    sources = SOURCES

    @model_validator(mode="after")
    def _features_can_be_kept(self) -> Self:
        frozen = self.model.network == "frozen"
        if frozen != bool(self.data.views):
            raise ValueError(
                "a frozen network learns from features in data.views, such as [1.0], and no other network does; "
                f"got network={self.model.network} with views={list(self.data.views)}"
            )
        if self.training.cache and not frozen:
            raise ValueError(
                f"training.cache keeps features of a backbone that is not trained; {self.model.network} networks "
                "train theirs: set model.network=frozen"
            )
        if frozen and "backbone." not in self.training.frozen:
            raise ValueError(
                "the backbone of a frozen network is not trained: training.frozen must have backbone., got "
                f"{list(self.training.frozen)}"
            )
        return self
