"""Base class of recipes: frozen values that are validated on creation. Each task adds its own parts."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import model_validator

from dnlnet.attention import VARIANTS
from dnlnet.attention.spec import resolve_settings
from dnlnet.data.catalog import DataSet, Samples, find_data_set
from dnlnet.data.classes import Classes
from dnlnet.engine.settings import Optim, RunSettings, Schedule, Training
from dnlnet.fields import FileName, OpenFraction, Part, Percentage, PositiveFloat, Text
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.model import Model, past_options
from dnlnet.recipes.sources import Source

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dnlnet.data.check import Report
    from dnlnet.deployment import Exportable
    from dnlnet.engine.task import Task
    from dnlnet.recipes.predictor import Predictor

# Names of the variants in the paper's tables; None is the network without a block.
METHODS: Mapping[str | None, str] = {
    None: "Baseline",
    "nl": "NL",
    "nl_pairwise": "NL_p",
    "nl_unary": "NL_u",
    "dnl_star": "DNL*",
    "dnl_dagger": "DNL†",
    "dnl": "DNL",
}


class DataPart(Part):
    """Name of a data set, and its splits."""

    name: Text
    train: Text = "train"
    test: Text | None = "val"  # None if training uses all labelled images
    holdout: OpenFraction | None = None  # share of a folder without splits that is held out as val


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

    def network_with_features(self, run: RunContext, classes: int) -> "nn.Module":
        """Return the initial network of a run that trains on its features. Raises unless its backbone is trained."""
        if self.model.weights is None:
            raise ValueError(f"{self.name}: frozen features need a trained backbone; set model.weights to a file")
        return self.first_network(run, classes)

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
        return find_data_set(self.data_sets, self.data.name).open(root, split, self.data.holdout)

    def measured_part(self, network: "nn.Module") -> "nn.Module":
        """Return the part of the network that runs on a training batch, to estimate its memory."""
        return network

    def fold(self, network: "nn.Module") -> "nn.Module":
        """Return the network with batch norms folded into convolutions, which computes the same function."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms

        return fold_batch_norms(network, torch.zeros(1, 3, *(min(length, 64) for length in self.training_size)))

    def in_bfloat16(self, network: "nn.Module") -> "nn.Module":
        """Return a copy of the network that computes in bfloat16, with inputs and outputs in float32."""
        from dnlnet.backbones.bfloat16 import InBfloat16

        return InBfloat16(network)

    def stored(self) -> dict[str, Any]:
        """Return plain data to store with a run or model, without the scores of the recipe's row.

        >>> from dnlnet.registry import find_recipe
        >>> {"paper", "measured"} & find_recipe("camvid-mbv2-dnl").stored().keys()
        set()
        """
        content = self.model_dump(mode="json", exclude={"paper", "measured"})
        model = self.model
        if past := past_options(model.variant, model.preset):
            now = resolve_settings(VARIANTS[model.variant or "dnl"], model.preset, **model.block)
            content["model"]["block"] |= {name: getattr(now, name) for name in past}
        return content

    def settings(self, *, seed: int = 0, workers: int = 0, skip_nonfinite: int = 0) -> RunSettings:
        """Return the settings of one run."""
        return RunSettings(self.optim, self.schedule, self.training, seed, workers, skip_nonfinite)
