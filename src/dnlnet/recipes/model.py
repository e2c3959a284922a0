"""Models of recipes: attention, initial weights and backbone of a network. Each task adds its own fields."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationInfo, field_validator, model_validator

from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.attention.spec import resolve_settings
from dnlnet.backbones import BACKBONES
from dnlnet.backbones.pixels import CAFFE, MEAN, STD, Pixels
from dnlnet.errors import unknown
from dnlnet.fields import ColourMean, Flag, Part, PositiveFloat, Text

IMAGENET = "imagenet"  # value of `model.weights` for ImageNet weights


class PixelNumbers(Part):
    """Normalisation of pixels in 0..255: mean and std of each colour, red first."""

    mean: tuple[ColourMean, ColourMean, ColourMean] = MEAN
    deviation: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = STD
    blue_first: Flag = False  # order of the network's colours


def pixel_fields(pixels: Pixels) -> dict[str, Any]:
    """Return the fields of a `BackboneModel` whose network takes these pixels.

    >>> pixel_fields(Pixels()), pixel_fields(CAFFE)
    ({}, {'caffe_pixels': True})
    """
    if pixels in (Pixels(), CAFFE):
        return {"caffe_pixels": True} if pixels == CAFFE else {}
    return {"pixels": {"mean": pixels.mean, "deviation": pixels.deviation, "blue_first": pixels.blue_first}}


class Model(Part):
    """Attention and initial weights of a network."""

    weights: Text | None = None
    whole: Flag = False  # load every fitting tensor of the trained model in `weights`, not only its backbone
    variant: str | None = None  # None is the baseline, without a block
    preset: str = "paper"
    block: Mapping[str, Any] = {}  # fields of `dnlnet.BlockSettings`

    unused: ClassVar[frozenset[str]] = frozenset()  # outdated fields in stored models of this kind
    known: ClassVar[Mapping[str, Mapping[str, object]]] = {"variant": VARIANTS, "preset": PRESETS}

    @property
    def layers(self) -> str:
        """Name of the backbone, or a phrase for a network without one."""
        return "layers of its own"

    @model_validator(mode="before")
    @classmethod
    def _ignore_fields_of_earlier_versions(cls, content: Any, info: ValidationInfo) -> Any:
        """Drop stored fields that this kind of network never used."""
        if info.context is None or not info.context.get("stored") or not isinstance(content, dict):
            return content
        return {name: value for name, value in content.items() if name not in cls.unused}

    @model_validator(mode="after")
    def _whole_needs_a_trained_model(self) -> Self:
        if self.whole and self.weights in (None, IMAGENET):
            raise ValueError(f"model.whole=true needs a trained model as model.weights, got {self.weights}")
        return self

    @field_validator("variant", "preset", "backbone", check_fields=False)
    @classmethod
    def _known_name(cls, name: str | None, info: ValidationInfo) -> str | None:
        kind = info.field_name or ""
        if name is not None and name not in cls.known[kind]:
            raise unknown(kind, name, cls.known[kind])
        return name

    @field_validator("block")
    @classmethod
    def _known_block(cls, block: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        if "variant" not in info.data or "preset" not in info.data:  # one of these is invalid and has its own error
            return block
        variant, preset = info.data["variant"], info.data["preset"]
        if info.context is not None and info.context.get("stored"):
            block = {**past_options(variant, preset), **block}
        resolve_settings(VARIANTS[variant or "dnl"], preset, **block)
        return block


class BackboneModel(Model):
    """Network on a pretrained backbone."""

    known: ClassVar[Mapping[str, Mapping[str, object]]] = {**Model.known, "backbone": BACKBONES}

    backbone: str
    stride_in_1x1: Flag = False
    ceil_pool: Flag = False
    caffe_pixels: Flag = False  # blue first, minus Caffe's mean
    pixels: PixelNumbers | None = None  # None: ImageNet's normalisation, red first, unless `caffe_pixels`
    weights: Text | None = IMAGENET  # "imagenet" (bundled or timm's), the name of a bundled model, or a file

    @property
    def layers(self) -> str:
        """Name of the backbone, or a phrase for a network without one."""
        return self.backbone

    @model_validator(mode="after")
    def _pixels_are_given_once(self) -> Self:
        if self.caffe_pixels and self.pixels is not None:
            raise ValueError("model.caffe_pixels=true and model.pixels contradict each other; give one of them")
        return self

    def network_pixels(self) -> Pixels:
        """Return the normalisation of the network's pixels."""
        if self.pixels is None:
            return CAFFE if self.caffe_pixels else Pixels()
        return Pixels(self.pixels.mean, self.pixels.deviation, self.pixels.blue_first)


def past_options(variant: str | None, preset: str) -> dict[str, bool]:
    """Return the options whose values in a preset have changed, with their old values.

    Stored recipes contain these options. One from an earlier version, which lacks them, gets the old values.

    >>> past_options("nl_unary", "authors_detection"), past_options("dnl", "authors_detection")
    ({'unary_scaled': True}, {})
    """
    row = VARIANTS.get(variant or "")
    if row is None:
        return {}
    if preset in ("authors_temperature", "authors_detection") and row.unary == "query_mean" and not row.coupled:
        return {"unary_scaled": True}
    return {"pool_projected": False} if preset == "mmseg" and row.name == "nl" else {}
