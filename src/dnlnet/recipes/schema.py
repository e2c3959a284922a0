"""What a recipe says: everything that a run depends on, as frozen values that are checked when they are made."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.attention.spec import resolve_settings
from dnlnet.backbones import BACKBONES, VIDEO_BACKBONES
from dnlnet.errors import shown, unknown
from dnlnet.recipes.ranges import (
    Count,
    Deviation,
    Dilation,
    Few,
    FileName,
    Flag,
    FrameRate,
    Index,
    InnerShare,
    OutputStride,
    PartShare,
    Pattern,
    Positive,
    Rate,
    Scale,
    Score,
    Share,
    Size,
    Text,
    Weight,
    validated,
)

Number = TypeVar("Number", int, float)


class Part(BaseModel):
    """A part of a recipe: cannot be changed, and knows no other fields than its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Model(Part):
    """What all networks with blocks have: a backbone, where its weights come from, and the blocks' attention."""

    backbones: ClassVar[Mapping[str, object]] = BACKBONES

    backbone: str
    stride_in_1x1: Flag = False
    ceil_pool: Flag = False
    caffe_pixels: Flag = False
    weights: Text | None = "imagenet"  # `imagenet` is timm's own; anything else is a file
    variant: str | None = None  # None is the baseline, without a block
    preset: str = "paper"
    block: Mapping[str, Any] = {}  # fields of `dnlnet.Settings`

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
        if "variant" in info.data and "preset" in info.data:  # else they are what is wrong
            resolve_settings(VARIANTS[info.data["variant"] or "dnl"], info.data["preset"], **block)
        return block


class SegmentorModel(Model):
    """A segmentation network."""

    network: Literal["segmentor", "tiny"] = "segmentor"
    backbone: str = "resnet101s"
    output_stride: OutputStride | None = 8
    dilations: tuple[tuple[Dilation, ...], ...] | None = None  # None is what the output stride asks for
    head_dilation: Dilation = 1
    block: Mapping[str, Any] = {"gate": "scalar"}
    width: Few = 512
    auxiliary: Flag = True
    auxiliary_width: Few | None = None  # None is that of the head
    auxiliary_bias: Flag = True
    align_corners: Flag = True

    @model_validator(mode="after")
    def _tiny_has_no_backbone(self) -> Self:
        for name, usual in {"weights": None, "dilations": None, "head_dilation": 1}.items():
            if self.network == "tiny" and getattr(self, name) != usual:
                raise ValueError(f"the tiny network has no backbone to use {name}={shown(getattr(self, name))}")
        return self


class DetectorModel(Model):
    """A detector: see `dnlnet.detection.network.Detector`."""

    backbone: str = "resnet50"
    preset: str = "authors_detection"
    placement: Literal["c4_one", "c5_all", "c4_one_c5_all", "c4c5_all"] = "c4_one"
    after_activation: Flag = False
    boxes: Few = 512  # of an image, that the heads are trained on
    proposals: Few = 1000  # of an image, that the heads look at
    anchor: Annotated[int, Field(strict=True, ge=1, le=4096)] = 32  # pixels, the side of the smallest anchors


class VideoClassifierModel(Model):
    """A classifier of clips: see `dnlnet.video.network.VideoClassifier`."""

    backbones: ClassVar[Mapping[str, object]] = VIDEO_BACKBONES

    backbone: str = "slow_only_r50"
    preset: str = "slowfast"
    placement: Mapping[str, tuple[Index, ...]] | None = None  # stage -> residual blocks; None is the paper's
    dropout: PartShare = 0.5


class Data(Part):
    """A data set, its splits, and how crops of it are drawn for training."""

    name: Text
    train: Text = "train"
    test: Text | None = "val"  # None where all that is labelled is trained on
    crop: Size
    scales: tuple[Scale, Scale] = (0.5, 2.0)
    aspects: tuple[Scale, Scale] = (1.0, 1.0)
    short_side: Few | None = None
    flip: Share = 0.5
    brightness: Annotated[int, Field(strict=True, ge=0, le=255)] = 10

    @field_validator("scales", "aspects")
    @classmethod
    def _from_low_to_high(cls, ends: tuple[float, float]) -> tuple[float, float]:
        return _rising(ends)


class InstanceData(Part):
    """A data set of objects, its splits, and the size that its images are looked at in."""

    name: Text = "coco"
    train: Text = "train2017"
    test: Text | None = "val2017"
    short_side: Few = 800
    long_side: Few = 1333
    flip: Share = 0.5

    @model_validator(mode="after")
    def _long_is_longer(self) -> Self:
        if self.long_side < self.short_side:
            raise ValueError(f"a long_side of {self.long_side} is shorter than a short_side of {self.short_side}")
        return self


class VideoData(Part):
    """A data set of videos, its splits, which frames make a clip, and how clips are drawn for training."""

    name: Text = "kinetics"
    train: Text = "train"
    test: Text | None = "val"
    frames: Few = 8
    stride: Few = 8  # frames from one of a clip to the next
    rate: FrameRate = 30.0  # frames a second that videos are taken to have
    short_sides: tuple[Few, Few] = (256, 320)
    crop: Few = 224
    flip: Share = 0.5
    mean: tuple[Share, Share, Share] = (0.45, 0.45, 0.45)  # of pixels in 0..1, and their deviation
    deviation: tuple[Deviation, Deviation, Deviation] = (0.225, 0.225, 0.225)

    @field_validator("short_sides")
    @classmethod
    def _from_low_to_high(cls, ends: tuple[int, int]) -> tuple[int, int]:
        return _rising(ends)

    @model_validator(mode="after")
    def _crop_fits(self) -> Self:
        if self.crop > self.short_sides[0]:
            raise ValueError(f"a crop of {self.crop} does not fit into short_sides of {self.short_sides[0]}")
        return self


class Ohem(Part):
    """Which pixels are hard enough to count."""

    threshold: InnerShare = 0.7
    kept: Count = 100_000


class Loss(Part):
    """Cross-entropy with its options."""

    ohem: Ohem | None = None
    class_weights: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=65_536)] | None = None
    auxiliary_weight: Weight = 0.5


class Optim(Part):
    """Stochastic gradient descent, or AdamW."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: Rate
    momentum: PartShare = 0.9  # of sgd; adamw has betas of 0.9 and 0.999
    weight_decay: Share = 5e-4
    no_decay: tuple[Pattern, ...] = ()  # patterns of parameter names, such as block.query
    decay_norms: Flag = True
    clip: Positive | None = None
    average: InnerShare | None = None  # decay of a moving average of the weights

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> Self:
        usual = type(self).model_fields["momentum"].default
        if self.kind == "adamw" and self.momentum != usual:
            raise ValueError(
                f"momentum={self.momentum} is a setting of sgd, and adamw has none; leave it at {usual}, or set "
                "kind to sgd"
            )
        return self


class Phase(Part):
    """A further round of training, from the weights that the one before it ended with."""

    train: Text
    iterations: Count
    lr: Rate


class Schedule(Part):
    """How long, and how the learning rate goes: see `dnlnet.engine.optim.LearningRate`."""

    iterations: Count
    batch: Few  # images of one step, over all processes
    accumulate: Few = 1  # parts of a batch computed one after the other
    kind: Literal["poly", "step", "cosine"] = "poly"
    power: Annotated[float, Field(strict=True, gt=0, le=100)] = 0.9
    milestones: tuple[Count, ...] = ()
    warmup: Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)] = 0
    warmup_start: Share = 0.0
    then: tuple[Phase, ...] = ()

    @model_validator(mode="after")
    def _can_be_followed(self, info: ValidationInfo) -> Self:
        """What a run cannot follow is refused; that of a model which was trained with it is past."""
        if info.context is not None and info.context.get("stored"):
            return self
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be accumulated in {self.accumulate} equal parts")
        shortest = min([self.iterations, *(phase.iterations for phase in self.then)])
        if self.warmup > shortest:
            raise ValueError(f"a warmup of {self.warmup} iterations is longer than the run, of {shortest}")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, got {shown(list(self.milestones))}")
        if self.kind == "step" and self.milestones and self.milestones[-1] >= self.iterations:
            raise ValueError(
                f"a milestone at {self.milestones[-1]} lies behind the last of {self.iterations} iterations"
            )
        return self


class Training(Part):
    """How it is computed, and how often it is looked at and kept."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    channels_last: Flag = False
    compile: Flag = False
    frozen: tuple[Text, ...] = ()  # beginnings of the names of parameters that are not trained
    frozen_statistics: Flag = False
    evaluate_every: Count = 1000
    save_every: Count = 1000
    keep: Annotated[int, Field(strict=True, ge=1, le=1000)] = 2


class Evaluation(Part):
    """How the network is tested."""

    window: Size | None = None  # None looks at whole images
    stride: Size | None = None
    short_side: Few | None = None
    scales: Annotated[tuple[Scale, ...], Field(min_length=1, max_length=100)] = (1.0,)
    flip: Flag = False

    @model_validator(mode="after")
    def _windows_leave_no_gaps(self) -> Self:
        if (self.window is None) != (self.stride is None):
            raise ValueError("windows need a size and a stride: give both window and stride, or none")
        if self.window is not None and self.stride is not None:
            for step, length in zip(self.stride, self.window, strict=True):
                if step > length:
                    raise ValueError(f"a stride of {step} leaves gaps between windows of {length}")
        return self


class Views(Part):
    """How a video is tested: clips spread over its length, crops over the longer side of each."""

    clips: Few = 10
    crops: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    short_side: Few = 256
    at_once: Few = 8  # views that the network looks at together


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
    """One row of a table: what is trained on what, how, and how it is tested. Each task has its own kind."""

    name: FileName
    task: str
    model: Model
    data: Data | InstanceData | VideoData
    optim: Optim
    schedule: Schedule
    training: Training = Training()
    paper: PaperRow | None = None
    measured: Measured | None = None


class SegmentationRecipe(Recipe):
    """Classes of pixels."""

    task: Literal["segmentation"] = "segmentation"
    model: SegmentorModel
    data: Data
    loss: Loss = Loss()
    evaluation: Evaluation = Evaluation()


class DetectionRecipe(Recipe):
    """Boxes, classes and masks of objects."""

    task: Literal["detection"] = "detection"
    model: DetectorModel
    data: InstanceData


class VideoRecipe(Recipe):
    """Classes of videos."""

    task: Literal["video"] = "video"
    model: VideoClassifierModel
    data: VideoData
    evaluation: Views = Views()


KINDS: Mapping[str, type[Recipe]] = {
    "segmentation": SegmentationRecipe,
    "detection": DetectionRecipe,
    "video": VideoRecipe,
}


def parse_recipe(text: str) -> Recipe:
    """A recipe from its JSON, as model files hold it.

    >>> from dnlnet.recipes import find_recipe
    >>> recipe = find_recipe("camvid-mbv2-dnl")
    >>> parse_recipe(recipe.model_dump_json()) == recipe
    True
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a mapping, got {shown(content)}")
    task = content.get("task", "segmentation")
    if not isinstance(task, str) or task not in KINDS:
        raise ValueError(f"task: expected one of {', '.join(KINDS)}, got {shown(task)}")
    return validated(KINDS[task], content, stored=True)


def parse_json(text: str) -> Any:
    """What a JSON text says; an error in words if it is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None


def _known(kind: str, name: str, names: Mapping[str, object]) -> str:
    if name not in names:
        raise unknown(kind, name, names)
    return name


def _rising(ends: tuple[Number, Number]) -> tuple[Number, Number]:
    if ends[0] > ends[1]:
        raise ValueError("expected a range from low to high")
    return ends
