"""Base classes of recipes: frozen values that are validated on creation. Each task adds its own parts."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import ValidationInfo, field_validator, model_validator

from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.attention.spec import resolve_settings
from dnlnet.backbones import BACKBONES
from dnlnet.backbones.pixels import CAFFE, DEVIATION, MEAN, Pixels
from dnlnet.data.catalog import DataSet, Samples, find_data_set
from dnlnet.data.classes import Classes
from dnlnet.engine.settings import Optim, RunSettings, Schedule, Training
from dnlnet.errors import unknown
from dnlnet.fields import (
    ColourMean,
    FileName,
    Flag,
    Part,
    Percentage,
    PositiveFloat,
    Text,
)
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.sources import Source

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dnlnet.data.check import Report
    from dnlnet.deployment import Exportable
    from dnlnet.engine.task import Task
    from dnlnet.recipes.predictor import Predictor

Number = TypeVar("Number", int, float)

IMAGENET = "imagenet"  # value of `model.weights` for ImageNet weights


class PixelNumbers(Part):
    """Normalisation of pixels in 0..255: mean and std of each colour, red first."""

    mean: tuple[ColourMean, ColourMean, ColourMean] = MEAN
    deviation: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = DEVIATION
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

    unused: ClassVar[frozenset[str]] = frozenset()  # outdated fields in stored models of this kind

    @model_validator(mode="after")
    def _whole_needs_a_trained_model(self) -> Self:
        if self.whole and self.weights in (None, IMAGENET):
            raise ValueError(f"model.whole=true needs a trained model as model.weights, got {self.weights}")
        return self

    @field_validator("variant")
    @classmethod
    def _known_variant(cls, variant: str | None) -> str | None:
        return variant if variant is None else _known("variant", variant, VARIANTS)

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, preset: str) -> str:
        return _known("preset", preset, PRESETS)

    @field_validator("block")
    @classmethod
    def _known_block(cls, block: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        if "variant" not in info.data or "preset" not in info.data:  # one of these is invalid and has its own error
            return block
        variant, preset = info.data["variant"], info.data["preset"]
        if info.context is not None and info.context.get("stored"):
            block = {**_past_options(variant, preset), **block}
        resolve_settings(VARIANTS[variant or "dnl"], preset, **block)
        return block


class BackboneModel(Model):
    """Network on a pretrained backbone."""

    backbones: ClassVar[Mapping[str, object]] = BACKBONES

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

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, backbone: str) -> str:
        return _known("backbone", backbone, cls.backbones)


class DataPart(Part):
    """Name of a data set, and its splits."""

    name: Text
    train: Text = "train"
    test: Text | None = "val"  # None if training uses all labelled images


class PaperRow(Part):
    """Numbers that the paper prints for this recipe, never ours."""

    table: str
    method: str
    scores: Mapping[str, Percentage]  # in per cent: mIoU by split, AP by kind
    parameters: PositiveFloat | None = None  # millions
    macs: PositiveFloat | None = None  # billions
    latency: PositiveFloat | None = None  # seconds per image
    remark: str = ""


class Measured(Part):
    """Scores that this package measured, with the command."""

    scores: Mapping[str, Percentage]
    command: str
    machine: str


@dataclass(frozen=True)
class HubCard:
    """Parts of a Hugging Face model card that all models of a task share.

    Args:
        pipeline: Name of the task on the hub.
        example: Name of an example file to predict.
        use: One line of Python that uses a model.
    """

    pipeline: str
    example: str
    use: str


class Recipe(Part):
    """Model, data, training and evaluation of one row of a table.

    Each task has one subclass. The rest of the package knows nothing else about the task.

    Attributes:
        data_sets: Data sets of the task by name.
        starter: Name of the small recipe for users' own data.
        unit: Name of the samples in a batch.
        class_score: Name of the score of each class in the log.
        score_files: Kinds of files that its scores can be written to.
        card: Shared parts of its models' cards.
        sources: Sources of the values in the paper's recipes.
    """

    name: FileName
    task: str
    model: Model
    data: DataPart
    optim: Optim
    schedule: Schedule
    training: Training = Training()
    paper: PaperRow | None = None
    measured: Measured | None = None

    data_sets: ClassVar[dict[str, DataSet[Any]]]
    starter: ClassVar[str]
    unit: ClassVar[str] = "images"
    class_score: ClassVar[str]
    score_files: ClassVar[tuple[str, ...]] = ()
    card: ClassVar[HubCard]
    sources: ClassVar[Sequence[Source]] = ()

    @property
    def uses_features(self) -> bool:
        """True if training uses features of a frozen backbone, which can be cached."""
        return False

    @model_validator(mode="after")
    def _only_features_can_be_kept(self) -> Self:
        if self.training.cache and not self.uses_features:
            raise ValueError(
                "training.cache keeps the features of a frozen backbone, and this recipe uses none; set it to false"
            )
        return self

    @abstractmethod
    def build(self, classes: int, *, pretrained: bool = True, progress: Progress = SILENT) -> "nn.Module":
        """Build the network; `pretrained` loads the weights named by the recipe."""

    def first_network(self, run: RunContext, classes: int, *, pretrained: bool = True) -> "nn.Module":
        """Return the initial network of a run, built once from the run's seed."""

        def build() -> "nn.Module":
            import torch

            from dnlnet.recipes.backbone import load_whole

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(run.seed)
                network = self.build(classes, pretrained=pretrained, progress=run.progress)
            if pretrained and self.model.whole:
                run.progress.say(f"{self.model.weights}, whole: {load_whole(network, self.model)}")
            return network

        return run.once("network", build)

    @abstractmethod
    def training_samples(self, run: RunContext, split: str, phase: int = 0) -> Samples:
        """Return the training samples of one phase of the schedule."""

    def validation_samples(self, run: RunContext, split: str) -> Samples:
        """Return the samples that score a run during training."""
        return self.test_samples(run.data, split)

    @abstractmethod
    def test_samples(self, root: Path | None, split: str) -> Samples:
        """Return the samples of a split that score a trained model."""

    @abstractmethod
    def training_task(self, classes: Classes, run: RunContext, validation: Samples | None = None) -> "Task":
        """Return the losses to minimise and the metric of the validation samples."""

    def test_task(self, classes: Classes, samples: Samples) -> "Task":
        """Return the task that scores a trained model on these samples."""
        return self.training_task(classes, RunContext(), samples)

    @abstractmethod
    def predictor(self, network: "nn.Module", classes: Classes, device: "torch.device | str" = "cpu") -> "Predictor":
        """Return the object that uses a trained network."""

    @abstractmethod
    def exportable(self, network: "nn.Module") -> "Exportable":
        """Return the network in the form that is exported. A subclass may take further keyword arguments."""

    @classmethod
    @abstractmethod
    def check_data(cls, opened: Any, progress: Progress = SILENT) -> "Report":
        """Read every file of a split, and return a report."""

    @property
    @abstractmethod
    def training_size(self) -> tuple[int, ...]:
        """Lengths of a training input after the axes of batch and colours."""

    @property
    def cost_size(self) -> tuple[int, ...] | None:
        """Input lengths for counting the network's cost; None if the cost depends on the content of the image."""
        return self.training_size

    @property
    def size_text(self) -> str:
        """Training size as text."""
        return "x".join(map(str, self.training_size))

    @property
    def class_count(self) -> int | None:
        """Number of classes, or None if it depends on the data."""
        row = find_data_set(self.data_sets, self.data.name)
        return row.class_count if row.classes is None else len(row.classes)

    def open(self, root: Path | None, split: str) -> Any:
        """Open a split of the recipe's data set in this folder."""
        if root is None:
            raise ValueError(
                f"{self.name} needs the folder of its data set, {self.data.name}: give it with --data DIR"
            )
        return find_data_set(self.data_sets, self.data.name).open(root, split)

    def measured_part(self, network: "nn.Module") -> "nn.Module":
        """Return the part of the network that runs on a training batch, to estimate its memory."""
        return network

    def fold(self, network: "nn.Module") -> "nn.Module":
        """Return the network with batch norms folded into convolutions, which computes the same function."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms

        return fold_batch_norms(network, torch.zeros(1, 3, *(min(length, 64) for length in self.training_size)))

    def stored(self) -> dict[str, Any]:
        """Return plain data to store with a run or model, without the scores of the recipe's row.

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
    """Return the options whose values in a preset have changed, with their old values.

    Stored recipes contain these options. One from an earlier version, which lacks them, gets the old values.

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
    """Return the ends of a range. Raises unless they are from low to high."""
    if ends[0] > ends[1]:
        raise ValueError("expected a range from low to high")
    return ends


def _known(kind: str, name: str, names: Mapping[str, object]) -> str:
    if name not in names:
        raise unknown(kind, name, names)
    return name
