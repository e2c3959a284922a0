"""Model, data and evaluation settings of video recipes."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Discriminator, Field, Tag, model_validator

from dnlnet.backbones import VIDEO_BACKBONES
from dnlnet.backbones.pixels import Pixels
from dnlnet.errors import unknown
from dnlnet.fields import (
    Flag,
    Fraction,
    FractionBelowOne,
    FrameRate,
    Index,
    OutputStride,
    Part,
    PixelStd,
    Rising,
    SmallInt,
    Text,
)
from dnlnet.recipes.model import BackboneModel
from dnlnet.recipes.recipe import DataPart
from dnlnet.video.data.clips import Clip

MOST_SEEN = 2**30  # pixels in all views of a video; 30 views of Kinetics have 2^24


class VideoClassifierModel(BackboneModel):
    """The paper's network: a slow-only ResNet with blocks between its residual blocks."""

    network: Literal["slow_only"] = "slow_only"
    known: ClassVar[Mapping[str, Mapping[str, object]]] = {**BackboneModel.known, "backbone": VIDEO_BACKBONES}

    backbone: str = "slow_only_r50"
    preset: str = "slowfast"
    placement: Mapping[str, tuple[Index, ...]] | None = None  # stage -> residual blocks, from 0, that a block follows
    dropout: FractionBelowOne = 0.5


class FrozenModel(BackboneModel):
    """A light head on the features of a frozen image backbone, which can be computed once and cached."""

    network: Literal["frozen"] = "frozen"
    backbone: str = "mobilenetv2"
    output_stride: OutputStride | None = 32
    width: SmallInt = 128
    dropout: FractionBelowOne = 0.5

    @property
    def layers(self) -> str:
        """Description of the layers before the head."""
        return f"features of {self.backbone}"


_KINDS = {"slow_only": VideoClassifierModel, "frozen": FrozenModel}


def _network(model: Any) -> str:
    """Return the tag of the network. Models saved by early versions do not name their network."""
    name = model.get("network", "slow_only") if isinstance(model, Mapping) else getattr(model, "network", "slow_only")
    if not isinstance(name, str) or name not in _KINDS:
        raise unknown("model.network", name, _KINDS)
    return f"network={name}"


AnyVideoModel = Annotated[  # error messages leave the tags out (see `validated`)
    Annotated[VideoClassifierModel, Tag("network=slow_only")] | Annotated[FrozenModel, Tag("network=frozen")],
    Discriminator(_network),
]


class VideoData(DataPart):
    """Data set, its splits, the sampling of clips, and their augmentation."""

    name: Text = "kinetics"
    frames: SmallInt = 8
    stride: SmallInt = 8  # distance between the frames of a clip, in frames at this rate
    rate: FrameRate = 30.0  # frames per second at which videos are sampled
    aligned: Flag = False  # clips start at multiples of the distance between their frames, so that clips share frames
    short_sides: Annotated[tuple[SmallInt, SmallInt], Rising] = (256, 320)
    crop: SmallInt = 224
    flip: Fraction = 0.5
    mean: tuple[Fraction, Fraction, Fraction] = (0.45, 0.45, 0.45)  # of pixels in 0..1
    deviation: tuple[PixelStd, PixelStd, PixelStd] = (0.225, 0.225, 0.225)

    @model_validator(mode="after")
    def _crop_fits(self) -> Self:
        if self.crop > self.short_sides[0]:
            raise ValueError(f"a crop of {self.crop} does not fit into short_sides of {self.short_sides[0]}")
        return self

    def clip(self) -> Clip:
        """Return the sampling of clips."""
        return Clip(self.frames, self.stride, self.rate, self.aligned)

    def pixels(self) -> Pixels:
        """Return the normalisation of clips."""
        mean, deviation = (tuple(255 * value for value in values) for values in (self.mean, self.deviation))
        return Pixels(mean, deviation)


class Views(Part):
    """Views of a video in testing: clips spread over its length, crops spread over its longer side."""

    clips: SmallInt = 10
    crops: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    short_side: SmallInt = 256
    # Files of earlier versions call it at_once.
    views_per_batch: Annotated[SmallInt, Field(validation_alias=AliasChoices("views_per_batch", "at_once"))] = 8
