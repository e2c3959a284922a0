"""What every recipe says, as frozen values that are checked when they are made; each system adds its own parts."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ValidationInfo, field_validator, model_validator

from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.attention.spec import resolve_settings
from dnlnet.backbones import BACKBONES
from dnlnet.backbones.pixels import CAFFE, DEVIATION, MEAN, Pixels
from dnlnet.engine.settings import Optim, RunSettings, Schedule, Training
from dnlnet.errors import unknown
from dnlnet.fields import (
    ColourMean,
    FileName,
    Flag,
    Part,
    Positive,
    Score,
    Text,
)
from dnlnet.recipes.sources import Source

Number = TypeVar("Number", int, float)

IMAGENET = "imagenet"  # as the weights of a backbone


class PixelNumbers(Part):
    """How pixels in 0..255 are normalised: numbers of each colour, red first."""

    mean: tuple[ColourMean, ColourMean, ColourMean] = MEAN
    deviation: tuple[Positive, Positive, Positive] = DEVIATION
    blue_first: Flag = False  # the network takes colours from blue to red


def pixel_fields(pixels: Pixels) -> dict[str, Any]:
    """Return the fields of a `Model` whose network takes these pixels.

    >>> pixel_fields(Pixels()), pixel_fields(CAFFE)
    ({}, {'caffe_pixels': True})
    """
    if pixels in (Pixels(), CAFFE):
        return {"caffe_pixels": True} if pixels == CAFFE else {}
    return {"pixels": {"mean": pixels.mean, "deviation": pixels.deviation, "blue_first": pixels.blue_first}}


class Model(Part):
    """What all networks with blocks have: a backbone, where its weights come from, and the blocks' attention."""

    backbones: ClassVar[Mapping[str, object]] = BACKBONES

    backbone: str
    stride_in_1x1: Flag = False
    ceil_pool: Flag = False
    caffe_pixels: Flag = False  # blue first, minus Caffe's mean
    pixels: PixelNumbers | None = None  # None is ImageNet's, red first, unless `caffe_pixels`
    weights: Text | None = IMAGENET  # `imagenet`: the box's, or else timm's own; a name in the box; or a file
    whole: Flag = False  # those of a trained model are for all of the network, where they fit, not the backbone alone
    variant: str | None = None  # None is the baseline, without a block
    preset: str = "paper"
    block: Mapping[str, Any] = {}  # fields of `dnlnet.BlockSettings`

    @model_validator(mode="after")
    def _whole_is_of_a_trained_model(self) -> Self:
        if self.whole and self.weights in (None, IMAGENET):
            raise ValueError(f"model.whole=true needs a trained model as model.weights, got {self.weights}")
        return self

    @model_validator(mode="after")
    def _pixels_are_given_once(self) -> Self:
        if self.caffe_pixels and self.pixels is not None:
            raise ValueError("model.caffe_pixels=true and model.pixels contradict each other; give one of them")
        return self

    def network_pixels(self) -> Pixels:
        """Return how the network's pixels are normalised."""
        if self.pixels is None:
            return CAFFE if self.caffe_pixels else Pixels()
        return Pixels(self.pixels.mean, self.pixels.deviation, self.pixels.blue_first)

    @field_validator("variant")
    @classmethod
    def _known_variant(cls, variant: str | None) -> str | None:
        return variant if variant is None else _known("variant", variant, VARIANTS)

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, backbone: str) -> str:
        return _known("backbone", backbone, cls.backbones)

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        return _known("preset", preset, PRESETS)

    @field_validator("block")
    @classmethod
    def _known_block(cls, block: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        if "variant" not in info.data or "preset" not in info.data:  # they are what is wrong
            return block
        variant, preset = info.data["variant"], info.data["preset"]
        if info.context is not None and info.context.get("stored"):
            block = {**_past_options(variant, preset), **block}
        resolve_settings(VARIANTS[variant or "dnl"], preset, **block)
        return block


class DataPart(Part):
    """What all data have: the name of a data set, and its splits."""

    name: Text
    train: Text = "train"
    test: Text | None = "val"  # None where all that is labelled is trained on


class PaperRow(Part):
    """What the paper prints for this recipe. Never ours."""

    table: str
    method: str
    scores: Mapping[str, Score]  # in per cent: mIoU by split, AP by kind
    parameters: Positive | None = None  # millions
    macs: Positive | None = None  # thousand millions
    latency: Positive | None = None  # seconds for an image
    remark: str = ""


class Measured(Part):
    """What this package reached, with the command that did it."""

    scores: Mapping[str, Score]
    command: str
    machine: str


class Recipe(Part):
    """One row of a table: what is trained on what, how, and how it is tested. Each system has its own kind."""

    name: FileName
    task: str
    model: Model
    data: DataPart
    optim: Optim
    schedule: Schedule
    training: Training = Training()
    paper: PaperRow | None = None
    measured: Measured | None = None
    sources: ClassVar[Sequence[Source]] = ()  # of the values of the paper's recipes

    def stored(self) -> dict[str, Any]:
        """As plain data, for a run or a trained model: without the scores of its row, which are not theirs.

        >>> from dnlnet.registry import find_recipe
        >>> {"paper", "measured"} & find_recipe("camvid-mbv2-dnl").stored().keys()
        set()
        """
        content = self.model_dump(mode="json", exclude={"paper", "measured"})
        model = self.model
        if past := _past_options(model.variant, model.preset):
            now = resolve_settings(VARIANTS[model.variant or "dnl"], model.preset, **model.block)
            content["model"]["block"] |= {name: getattr(now, name) for name in past}
        return content

    def settings(self, *, seed: int = 0, workers: int = 0, skip_nonfinite: int = 0) -> RunSettings:
        """Return the settings of one run."""
        return RunSettings(self.optim, self.schedule, self.training, seed, workers, skip_nonfinite)


def _past_options(variant: str | None, preset: str) -> dict[str, bool]:
    """Return options with values that a preset once had and has no longer.

    Recipes are stored with their own values of these options; a stored recipe without them has the preset's old ones.

    >>> _past_options("nl_unary", "authors_detection"), _past_options("dnl", "authors_detection")
    ({'unary_scaled': True}, {})
    """
    row = VARIANTS.get(variant or "")
    if row is None:
        return {}
    if preset in ("authors_temperature", "authors_detection") and row.unary == "query_mean" and not row.coupled:
        return {"unary_scaled": True}
    return {"pool_projected": False} if preset == "mmseg" and row.name == "nl" else {}


def require_rising(ends: tuple[Number, Number]) -> tuple[Number, Number]:
    """The ends of a range, if they are from low to high."""
    if ends[0] > ends[1]:
        raise ValueError("expected a range from low to high")
    return ends


def _known(kind: str, name: str, names: Mapping[str, object]) -> str:
    if name not in names:
        raise unknown(kind, name, names)
    return name
