"""Schema of video recipes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from dnlnet.backbones import VIDEO_BACKBONES
from dnlnet.backbones.pixels import Pixels
from dnlnet.fields import Deviation, Few, FrameRate, Index, Part, PartShare, Share, Text
from dnlnet.recipes.schema import DataPart, Model, Recipe, require_rising
from dnlnet.video.data.clips import Clip
from dnlnet.video.sources import SOURCES

MOST_SEEN = 2**30  # pixels in all views of a video; 30 views of Kinetics have 2^24


class VideoClassifierModel(Model):
    """Model settings (see `dnlnet.video.network.VideoClassifier`)."""

    backbones: ClassVar[Mapping[str, object]] = VIDEO_BACKBONES

    backbone: str = "slow_only_r50"
    preset: str = "slowfast"
    placement: Mapping[str, tuple[Index, ...]] | None = None  # stage -> residual blocks; None for the paper's
    dropout: PartShare = 0.5


class VideoData(DataPart):
    """Data set, its splits, the sampling of clips, and their augmentation."""

    name: Text = "kinetics"
    frames: Few = 8
    stride: Few = 8  # frames between those of a clip
    rate: FrameRate = 30.0  # frames per second at which videos are sampled
    short_sides: tuple[Few, Few] = (256, 320)
    crop: Few = 224
    flip: Share = 0.5
    mean: tuple[Share, Share, Share] = (0.45, 0.45, 0.45)  # of pixels in 0..1
    deviation: tuple[Deviation, Deviation, Deviation] = (0.225, 0.225, 0.225)

    @field_validator("short_sides")
    @classmethod
    def _from_low_to_high(cls, ends: tuple[int, int]) -> tuple[int, int]:
        return require_rising(ends)

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

    clips: Few = 10
    crops: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    short_side: Few = 256
    # Files of earlier versions call it at_once.
    views_per_batch: Annotated[Few, Field(validation_alias=AliasChoices("views_per_batch", "at_once"))] = 8


class VideoRecipe(Recipe):
    """Recipe for classifying videos."""

    task: Literal["video"] = "video"
    model: VideoClassifierModel
    data: VideoData
    evaluation: Views = Views()
    sources = SOURCES

    def seen_pixels(self) -> int:
        """Return the number of pixels in all views of a video, which are in memory at the same time."""
        views = self.evaluation
        return views.clips * views.crops * self.data.frames * views.short_side**2

    @model_validator(mode="after")
    def _views_can_be_seen(self) -> Self:
        if self.seen_pixels() > MOST_SEEN:
            views, side = self.evaluation, self.evaluation.short_side
            raise ValueError(
                f"{views.clips} x {views.crops} views of {self.data.frames} frames of {side} x {side} are "
                f"{self.seen_pixels():,} pixels per video; expected at most {MOST_SEEN:,}: lower evaluation.clips, "
                "evaluation.crops, evaluation.short_side or data.frames"
            )
        return self
