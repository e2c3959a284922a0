"""What a recipe says: everything that a run depends on, as frozen values that are checked when they are made."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.backbones import BACKBONES, VIDEO_BACKBONES
from dnlnet.errors import unknown

Size = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]  # height, width
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """A part of a recipe: cannot be changed, and knows no other fields than its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Part):
    """What all networks with blocks have: a backbone, where its weights come from, and the blocks' attention."""

    backbones: ClassVar[Mapping[str, object]] = BACKBONES

    backbone: str
    stride_in_1x1: bool = False
    ceil_pool: bool = False
    caffe_pixels: bool = False
    weights: str | None = "imagenet"  # `imagenet` is timm's own; anything else is a file
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


class SegmentorModel(Model):
    """A segmentation network."""

    network: Literal["segmentor", "tiny"] = "segmentor"
    backbone: str = "resnet101s"
    output_stride: int | None = 8
    dilations: tuple[tuple[Count, ...], ...] | None = None  # of the backbone; None is what its output stride asks for
    head_dilation: Count = 1
    block: Mapping[str, Any] = {"gate": "scalar"}
    width: Count = 512
    auxiliary: bool = True
    auxiliary_width: Count | None = None  # None is that of the head
    auxiliary_bias: bool = True
    align_corners: bool = True


class DetectorModel(Model):
    """A detector: see `dnlnet.models.detector.Detector`."""

    backbone: str = "resnet50"
    preset: str = "authors_detection"
    placement: Literal["c4_one", "c5_all", "c4_one_c5_all", "c4c5_all"] = "c4_one"
    after_activation: bool = False
    boxes: Count = 512  # of an image, that the heads are trained on
    proposals: Count = 1000  # of an image, that the heads look at
    anchor: Count = 32  # pixels, the side of the smallest anchors


class VideoModel(Model):
    """A classifier of clips: see `dnlnet.models.video.VideoClassifier`."""

    backbones: ClassVar[Mapping[str, object]] = VIDEO_BACKBONES

    backbone: str = "slow_only_r50"
    preset: str = "slowfast"
    placement: Mapping[str, tuple[int, ...]] | None = None  # stage -> residual blocks; None is the paper's
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


class Data(Part):
    """A data set, its splits, and how crops of it are drawn for training."""

    name: str
    train: str = "train"
    test: str | None = "val"  # None where all that is labelled is trained on
    crop: Size
    scales: tuple[Positive, Positive] = (0.5, 2.0)
    aspects: tuple[Positive, Positive] = (1.0, 1.0)
    short_side: Count | None = None
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    brightness: Annotated[int, Field(ge=0, le=255)] = 10


class InstanceData(Part):
    """A data set of objects, its splits, and the size that its images are looked at in."""

    name: str = "coco"
    train: str = "train2017"
    test: str | None = "val2017"
    short_side: Count = 800
    long_side: Count = 1333
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5


class VideoData(Part):
    """A data set of videos, its splits, which frames make a clip, and how clips are drawn for training."""

    name: str = "kinetics"
    train: str = "train"
    test: str | None = "val"
    frames: Count = 8
    stride: Count = 8  # frames from one of a clip to the next
    rate: Positive = 30.0  # frames a second that videos are taken to have
    short_sides: tuple[Count, Count] = (256, 320)
    crop: Count = 224
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    mean: tuple[Positive, Positive, Positive] = (0.45, 0.45, 0.45)  # of pixels in 0..1, and their deviation
    deviation: tuple[Positive, Positive, Positive] = (0.225, 0.225, 0.225)


class Ohem(Part):
    """Which pixels are hard enough to count."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.7
    kept: Count = 100_000


class Loss(Part):
    """Cross-entropy with its options."""

    ohem: Ohem | None = None
    class_weights: tuple[Positive, ...] | None = None
    auxiliary_weight: Annotated[float, Field(ge=0)] = 0.5


class Optim(Part):
    """Stochastic gradient descent."""

    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    no_decay: tuple[str, ...] = ()  # patterns of parameter names, such as block.query
    decay_norms: bool = True
    clip: Positive | None = None
    average: Annotated[float, Field(gt=0, lt=1)] | None = None  # decay of a moving average of the weights


class Phase(Part):
    """A further round of training, from the weights that the one before it ended with."""

    train: str
    iterations: Count
    lr: Positive


class Schedule(Part):
    """How long, and how the learning rate goes: see `dnlnet.engine.optim.LearningRate`."""

    iterations: Count
    batch: Count  # images of one step, over all processes
    accumulate: Count = 1  # parts of a batch computed one after the other
    kind: Literal["poly", "step", "cosine"] = "poly"
    power: Positive = 0.9
    milestones: tuple[Count, ...] = ()
    warmup: Annotated[int, Field(ge=0)] = 0
    warmup_start: Annotated[float, Field(ge=0, le=1)] = 0.0
    then: tuple[Phase, ...] = ()


class Training(Part):
    """How it is computed, and how often it is looked at and kept."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    channels_last: bool = False
    compile: bool = False
    frozen: tuple[str, ...] = ()  # beginnings of the names of parameters that are not trained
    frozen_statistics: bool = False
    evaluate_every: Count = 1000
    save_every: Count = 1000
    keep: Count = 2


class Evaluation(Part):
    """How the network is tested."""

    window: Size | None = None  # None looks at whole images
    stride: Size | None = None
    short_side: Count | None = None
    scales: tuple[Positive, ...] = (1.0,)
    flip: bool = False


class Views(Part):
    """How a video is tested: clips spread over its length, crops over the longer side of each."""

    clips: Count = 10
    crops: Count = 3
    short_side: Count = 256
    at_once: Count = 8  # views that the network looks at together


class PaperRow(Part):
    """What the paper prints for this recipe. Never ours."""

    table: str
    method: str
    scores: Mapping[str, float]  # in per cent: mIoU by split, AP by kind
    parameters: float | None = None  # millions
    macs: float | None = None  # thousand millions
    latency: float | None = None  # seconds for an image
    remark: str = ""


class Measured(Part):
    """What this package reached, with the command that did it."""

    scores: Mapping[str, float]
    command: str
    machine: str


class Recipe(Part):
    """One row of a table: what is trained on what, how, and how it is tested. Each task has its own kind."""

    name: str
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
    model: VideoModel
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
    content = json.loads(text)
    return KINDS[_known("task", content.get("task", "segmentation"), KINDS)].model_validate(content)


def _known(kind: str, name: str, names: Mapping[str, object]) -> str:
    if name not in names:
        raise unknown(kind, name, names)
    return name
