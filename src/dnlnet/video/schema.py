"""Model, data and evaluation settings of video recipes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import AliasChoices, Field, model_validator

from dnlnet.backbones import VIDEO_BACKBONES
from dnlnet.backbones.pixels import Pixels
from dnlnet.fields import Fraction, FractionBelowOne, FrameRate, Index, Part, PixelStd, Rising, SmallInt, Text
from dnlnet.recipes.model import BackboneModel
from dnlnet.recipes.recipe import DataPart
from dnlnet.video.data.clips import Clip

MOST_SEEN = 2**30  # pixels in all views of a video; 30 views of Kinetics have 2^24


class VideoClassifierModel(BackboneModel):
    """Model settings."""

    known: ClassVar[Mapping[str, Mapping[str, object]]] = {**BackboneModel.known, "backbone": VIDEO_BACKBONES}

    backbone: str = "slow_only_r50"
    preset: str = "slowfast"
    placement: Mapping[str, tuple[Index, ...]] | None = None  # stage -> residual blocks, from 0, that a block follows
    dropout: FractionBelowOne = 0.5


class VideoData(DataPart):
    """Data set, its splits, the sampling of clips, and their augmentation."""

    name: Text = "kinetics"
    frames: SmallInt = 8
    stride: SmallInt = 8  # distance between the frames of a clip, in frames at this rate
    rate: FrameRate = 30.0  # frames per second at which videos are sampled
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
        return Clip(self.frames, self.stride, self.rate)

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
