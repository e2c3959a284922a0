"""Parts of a segmentation recipe: network, data, loss and evaluation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.transforms import Augmentation
from dnlnet.errors import unknown
from dnlnet.fields import (
    Dilation,
    Flag,
    Fraction,
    HeightWidth,
    ImageScale,
    Index,
    LossWeight,
    OpenFraction,
    OutputStride,
    Part,
    PositiveFloat,
    PositiveInt,
    SmallInt,
)
from dnlnet.progress import Progress
from dnlnet.recipes.schema import BackboneModel, DataPart, Model, require_rising
from dnlnet.segmentation.data.views import View

if TYPE_CHECKING:
    from torch import nn

    from dnlnet.backbones import Backbone
    from dnlnet.segmentation.frozen import FrozenSegmentor
    from dnlnet.segmentation.inference import Inference


class _Dilated(BackboneModel):
    """A network on a backbone whose last stages may be dilated."""

    backbone: str = "resnet101s"
    output_stride: OutputStride | None = 8
    dilations: tuple[tuple[Dilation, ...], ...] | None = None  # None: given by the output stride

    def build_backbone(self, pretrained: bool, progress: Progress) -> "Backbone":
        """Build the backbone. `pretrained` loads the weights named in the recipe."""
        from dnlnet.recipes.backbone import build_backbone

        return build_backbone(self, self.output_stride, pretrained, progress, self.dilations)


class FCN(_Dilated):
    """The paper's network: a dilated backbone, a head with the block, and an auxiliary head."""

    unused = frozenset({"stages", "reduce", "subpixels", "detail"})

    network: Literal["segmentor"] = "segmentor"
    head_dilation: Dilation = 1
    auxiliary_dilation: Dilation | None = None  # None: as the head
    join_input: Flag = True  # the released head concatenates its input and its output
    head: Literal["release", "text"] = "release"  # the authors' code, or the paper's text
    block: Mapping[str, Any] = {"gate": "scalar"}
    width: SmallInt = 512
    fused_width: SmallInt | None = None  # channels of the head after the join; None: `width`
    auxiliary: Flag = True
    auxiliary_width: SmallInt | None = None  # None: `width`
    auxiliary_bias: Flag = True
    align_corners: Flag = True

    @model_validator(mode="after")
    def _a_fused_width_needs_a_join(self) -> Self:
        if self.fused_width is not None and not (self.head == "release" and self.join_input):
            raise ValueError(
                f"fused_width={self.fused_width} is for a head that joins its input: set head=release and "
                "join_input=true, or leave it out"
            )
        return self

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "nn.Module":
        """Build the network."""
        from dnlnet.segmentation.network import Segmentor

        return Segmentor(
            self.build_backbone(pretrained, progress),
            classes,
            self.variant,
            width=self.width,
            head=self.head,
            fused_width=self.fused_width,
            auxiliary=self.auxiliary,
            auxiliary_width=self.auxiliary_width,
            auxiliary_bias=self.auxiliary_bias,
            dilation=self.head_dilation,
            auxiliary_dilation=self.auxiliary_dilation,
            join_input=self.join_input,
            align_corners=self.align_corners,
            preset=self.preset,
            **self.block,
        )


_OF_ALL = {"network", "width", "align_corners"}
_HEADS = {"head_dilation", "auxiliary_dilation", "join_input", "head", "fused_width"}
_AUXILIARY = {"auxiliary", "auxiliary_width", "auxiliary_bias"}


class Tiny(Model):
    """Four convolutions, the block and a classifier."""

    unused = frozenset((FCN.model_fields.keys() | FCN.unused) - Model.model_fields.keys() - _OF_ALL)

    network: Literal["tiny"] = "tiny"
    weights: None = None
    width: SmallInt = 64
    align_corners: Flag = True

    @property
    def layers(self) -> str:
        """Description of the layers before the head."""
        return "four convolutions"

    def network_pixels(self) -> Pixels:
        """Return the pixel normalisation of the network."""
        return Pixels()

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "nn.Module":
        """Build the network."""
        from dnlnet.segmentation.tiny import TinySegmentor

        return TinySegmentor(classes, self.width // 2, self.variant, preset=self.preset, **self.block)


class Frozen(_Dilated):
    """A light head on the features of a frozen backbone, which can be computed once and cached."""

    unused = frozenset(_HEADS | _AUXILIARY)

    network: Literal["frozen"] = "frozen"
    output_stride: OutputStride | None = 32
    width: SmallInt = 128
    align_corners: Flag = False
    stages: tuple[Index, ...] = (1, 2, 3)  # backbone stages that the head uses
    reduce: SmallInt | None = None  # channels that each stage is reduced to first
    subpixels: Annotated[int, Field(strict=True, ge=1, le=32)] = 1  # logits per side of a grid position
    detail: SmallInt | None = None  # channels of a convolution on the first stage's grid, after the block

    @property
    def layers(self) -> str:
        """Description of the layers before the head."""
        return f"features of {self.backbone}"

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "FrozenSegmentor":
        """Build the network."""
        from dnlnet.segmentation.frozen import FrozenSegmentor

        return FrozenSegmentor(
            self.build_backbone(pretrained, progress),
            classes,
            self.variant,
            stages=self.stages,
            width=self.width,
            reduce=self.reduce,
            subpixels=self.subpixels,
            detail=self.detail,
            preset=self.preset,
            **self.block,
        )


_KINDS = {"segmentor": FCN, "tiny": Tiny, "frozen": Frozen}


def _network(model: Any) -> str:
    """Return the tag of the network. Models saved by early versions do not name their network."""
    name = model.get("network", "segmentor") if isinstance(model, Mapping) else getattr(model, "network", "segmentor")
    if not isinstance(name, str) or name not in _KINDS:
        raise unknown("model.network", name, _KINDS)
    return f"network={name}"


SegmentorModel = FCN | Tiny | Frozen
AnySegmentorModel = Annotated[  # error messages leave the tags out (see `validated`)
    Annotated[FCN, Tag("network=segmentor")]
    | Annotated[Tiny, Tag("network=tiny")]
    | Annotated[Frozen, Tag("network=frozen")],
    Discriminator(_network),
]


class Data(DataPart):
    """A data set, its splits, and the augmentation of training crops."""

    crop: HeightWidth
    scales: tuple[ImageScale, ImageScale] = (0.5, 2.0)
    aspects: tuple[ImageScale, ImageScale] = (1.0, 1.0)
    short_side: SmallInt | None = None
    flip: Fraction = 0.5
    brightness: Annotated[int, Field(strict=True, ge=0, le=255)] = 10
    # Scales at which a frozen backbone computes features; `flip` adds flipped views.
    views: Annotated[tuple[ImageScale, ...], Field(max_length=20)] = ()

    @field_validator("scales", "aspects")
    @classmethod
    def _from_low_to_high(cls, ends: tuple[float, float]) -> tuple[float, float]:
        return require_rising(ends)

    def feature_views(self) -> list[View]:
        """Return the views in which the features of each image are computed."""
        return [
            View(scale, flipped) for scale in self.views for flipped in ((False, True) if self.flip else (False,))
        ]

    def augmentation(self) -> Augmentation:
        """Return the augmentation of training crops."""
        return Augmentation(self.crop, self.scales, self.aspects, self.short_side, self.flip, self.brightness)


class Ohem(Part):
    """Hard pixels: p(true class) below `threshold`, and at least `kept` per image of a process's batch."""

    threshold: OpenFraction = 0.7
    kept: PositiveInt = 100_000


class Loss(Part):
    """Cross-entropy with its options."""

    ohem: Ohem | None = None
    class_weights: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=65_536)] | None = None
    auxiliary_weight: LossWeight = 0.5


class Evaluation(Part):
    """Inference settings for testing."""

    window: HeightWidth | None = None  # None: whole images
    stride: HeightWidth | None = None
    short_side: SmallInt | None = None
    long_side: SmallInt | None = None  # limit of the longer side after resizing
    scales: Annotated[tuple[ImageScale, ...], Field(min_length=1, max_length=100)] = (1.0,)
    flip: Flag = False
    divisor: SmallInt = 1  # pad images to a multiple, with pixels that are 0 after normalisation
    image_corners: Flag | None = None  # `align_corners` for resizing images; None: as the network

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
        """Return the inference settings for the network of this model."""
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
