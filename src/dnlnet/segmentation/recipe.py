"""Segmentation recipe: data, network, training, scoring and export.

Listing recipes and data sets does not need torch; methods import it late.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from dnlnet.data.catalog import Samples
from dnlnet.data.classes import Classes
from dnlnet.data.labelled import find_labels
from dnlnet.data.parsing import validated
from dnlnet.errors import unknown
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.recipe import HubCard, Recipe
from dnlnet.segmentation.data.check import PixelReport, check_pixels, require_labels
from dnlnet.segmentation.data.sets import DATA_SETS
from dnlnet.segmentation.data.unpacked import unpack_into
from dnlnet.segmentation.schema import AnySegmentorModel, Data, Evaluation, Frozen, Loss, View
from dnlnet.segmentation.sources import SOURCES

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dnlnet.data.decoders import Labels
    from dnlnet.data.labelled import LabelledImages
    from dnlnet.deployment import Query
    from dnlnet.recipes.features import Source
    from dnlnet.segmentation.export import ExportableSegmentor
    from dnlnet.segmentation.predictor import SegmentationModel
    from dnlnet.segmentation.stages import Grid
    from dnlnet.segmentation.task import SegmentationTask

SCENES = "scenes"  # generated, so there is no data folder
# Backbone settings that the features depend on, besides the weights.
_FEATURE_SETTINGS = {"backbone", "output_stride", "dilations", "stride_in_1x1", "ceil_pool", "caffe_pixels", "pixels"}


class SegmentationRecipe(Recipe):
    """Recipe of a network that predicts the class of each pixel."""

    task: Literal["segmentation"] = "segmentation"
    model: AnySegmentorModel
    data: Data
    loss: Loss = Loss()
    evaluation: Evaluation = Evaluation()

    data_sets = DATA_SETS
    starter = "folder-mbv2_frozen-dnl"
    class_score = "IoU"
    score_files = ("picture",)
    card = HubCard(
        "image-segmentation",
        "image.jpg",
        'model.predict("image.jpg").overlay()  # (H, W, 3), the classes over the image',
    )
    sources = SOURCES

    @property
    def uses_features(self) -> bool:
        """True if training uses features of a frozen backbone, which can be cached."""
        return isinstance(self.model, Frozen)

    @model_validator(mode="after")
    def _only_frozen_networks_learn_from_features(self) -> Self:
        frozen = isinstance(self.model, Frozen)
        if frozen != bool(self.data.views):
            raise ValueError(
                "a frozen network learns from features in data.views, such as [1.0], and no other network does; "
                f"got network={self.model.network} with views={list(self.data.views)}"
            )
        if frozen and "backbone." not in self.training.frozen:
            raise ValueError(
                "the backbone of a frozen network is not trained: training.frozen must have backbone., got "
                f"{list(self.training.frozen)}"
            )
        return self

    @property
    def training_size(self) -> tuple[int, ...]:
        """Height and width of a training crop."""
        return self.data.crop

    @property
    def class_count(self) -> int | None:
        """Number of classes, or None if only the data folder defines it."""
        if self.data.name == SCENES:
            from dnlnet.data.scenes import CLASSES

            return len(CLASSES)
        return super().class_count

    def build(self, classes: int, *, pretrained: bool = True, progress: Progress = SILENT) -> "nn.Module":
        """Build the network.

        >>> import torch
        >>> from dnlnet.registry import find_recipe
        >>> find_recipe("scenes-tiny-dnl").build(classes=6)(torch.rand(1, 3, 32, 32)).logits.shape
        torch.Size([1, 6, 32, 32])
        """
        return self.model.build(classes, pretrained, progress)

    def training_samples(self, run: RunContext, split: str, phase: int = 0) -> Samples:
        """Return random crops of images, or of features while the backbone is frozen."""
        from dnlnet.data.samples import TrainingCrops
        from dnlnet.data.scenes import CLASSES, HELD_OUT_SEED, SceneSamples
        from dnlnet.segmentation.data.features import FeatureCrops

        data = self.data
        if data.name == SCENES:
            self._require_class_weights(CLASSES)
            _require_scenes(split, "train")
            count = self.schedule.iterations * self.schedule.batch
            return SceneSamples(count, data.crop, HELD_OUT_SEED + 1 + run.seed)
        images = self.open(run.data, split)
        self._require_class_weights(images.classes)
        require_labels(images.require_complete(), run.progress)
        run.progress.say(f"{images.name}: {len(images)} images to train on")
        if isinstance(self.model, Frozen) and not self._trains_backbone(phase):
            views = data.feature_views()
            source, grid = self._features(images, views, run)
            return FeatureCrops(images, source, views, _grid_size(data.crop, grid.stride), grid, run.seed)
        if run.unpacked is not None:
            images = unpack_into(images, run.unpacked)
        return TrainingCrops(images, data, run.seed)

    def validation_samples(self, run: RunContext, split: str) -> Samples:
        """Return the images of a split, or their features."""
        from dnlnet.data.samples import WholeImages
        from dnlnet.segmentation.data.features import WholeFeatures

        whole = self.test_samples(run.data, split)
        if not isinstance(self.model, Frozen) or not isinstance(whole, WholeImages) or self._trains_backbone():
            return whole
        return WholeFeatures(whole.images, *self._features(whole.images, [View(1.0)], run))

    def test_samples(self, root: Path | None, split: str) -> Samples:
        """Return the whole images of a split."""
        from dnlnet.data.samples import WholeImages
        from dnlnet.data.scenes import HELD_OUT_COUNT, HELD_OUT_SEED, SceneSamples

        if self.data.name == SCENES:
            _require_scenes(split, "val")
            return SceneSamples(HELD_OUT_COUNT, self.data.crop, HELD_OUT_SEED)
        return WholeImages(self.open(root, split))

    def training_task(
        self, classes: Classes, run: RunContext, validation: Samples | None = None
    ) -> "SegmentationTask":
        """Return the training task, which validates at one scale without flips."""
        import torch

        from dnlnet.engine.distributed import mean_over_processes
        from dnlnet.segmentation.losses import SegmentationLoss
        from dnlnet.segmentation.task import SegmentationTask

        self._require_class_weights(classes)
        weights = None if self.loss.class_weights is None else torch.tensor(self.loss.class_weights)
        loss = SegmentationLoss(weights, self.loss.ohem, self.loss.auxiliary_weight, average=mean_over_processes)
        once = self.evaluation.model_copy(update={"scales": (1.0,), "flip": False})
        return SegmentationTask(classes, loss.to(run.device), once.inference(self.model))

    def test_task(self, classes: Classes, samples: Samples) -> "SegmentationTask":
        """Return the test task with the recipe's inference settings."""
        from dnlnet.segmentation.losses import SegmentationLoss
        from dnlnet.segmentation.task import SegmentationTask

        return SegmentationTask(classes, SegmentationLoss(), self.evaluation.inference(self.model))

    def tested(
        self,
        *,
        whole: bool = False,
        window: int | None = None,
        scales: str | None = None,
        flip: bool | None = None,
    ) -> Self:
        """Return the recipe with other inference settings for testing."""
        if whole and window is not None:
            raise ValueError("--whole and --window contradict each other; give one of them")
        content = (self.evaluation.single_pass() if whole else self.evaluation).model_dump()
        if window is not None:
            stride = max(1, round(window * 2 / 3))
            content |= {"window": (window, window), "stride": (stride, stride)}
        if scales is not None:
            try:
                content["scales"] = tuple(float(scale) for scale in scales.split(","))
            except ValueError:
                message = f"--scales {scales}: expected numbers separated by commas, such as 0.5,1,1.5"
                raise ValueError(message) from None
        if flip is not None:
            content["flip"] = flip
        return self.model_copy(update={"evaluation": validated(Evaluation, content)})

    def predictor(
        self, network: "nn.Module", classes: Classes, device: "torch.device | str" = "cpu"
    ) -> "SegmentationModel":
        """Return the predictor with the recipe's inference settings."""
        from dnlnet.segmentation.predictor import SegmentationModel

        return SegmentationModel(network, classes, self.evaluation.inference(self.model), device)

    def exportable(self, network: "nn.Module", *, with_maps: "Sequence[Query]" = ()) -> "ExportableSegmentor":
        """Return the exportable network, with the attention maps of the queries as outputs."""
        from dnlnet.segmentation.export import ExportableSegmentor

        return ExportableSegmentor(network, self.evaluation.window or self.data.crop, with_maps)

    def label_finder(self, root: Path) -> "Callable[[Path], Labels | None]":
        """Return a function that finds the labels of an image in the recipe's data set."""
        return partial(find_labels, list(DATA_SETS[self.data.name].open_all(root)[0].values()))

    @classmethod
    def check_data(cls, opened: Any, progress: Progress = SILENT) -> PixelReport:
        """Read every file of a split."""
        return check_pixels(opened, progress)

    def open(self, root: Path | None, split: str) -> "LabelledImages":
        """Open a split of the recipe's data set in the folder `root`."""
        if self.data.name not in DATA_SETS:
            raise unknown("data set", self.data.name, [*DATA_SETS, SCENES])
        images: LabelledImages = super().open(root, split)
        return images

    def _features(
        self, images: "LabelledImages", views: Sequence[View], run: RunContext
    ) -> "tuple[Source[View], Grid]":
        """Return the source of the images' features, and the grid of the network."""
        from dnlnet.recipes.features import feature_source
        from dnlnet.segmentation.data.features import Extractor
        from dnlnet.segmentation.frozen import FrozenSegmentor

        network = self.network_with_features(run, len(images.classes))
        assert isinstance(network, FrozenSegmentor)
        settings = self.model.model_dump(mode="json", include=_FEATURE_SETTINGS)
        extractor = run.once("extractor", lambda: Extractor(network, settings, self.training.precision))
        files = [pair.image for pair in images.require_complete().pairs]
        return feature_source(extractor, list(product(files, views)), run), network.grid

    def _trains_backbone(self, phase: int | None = None) -> bool:
        """Return whether any phase up to this one trains part of the backbone. Default: all phases."""
        then = self.schedule.then[:phase]
        return any(prefix.startswith("backbone") for earlier in then for prefix in earlier.unfrozen)

    def _require_class_weights(self, classes: Classes) -> None:
        weights = self.loss.class_weights
        if weights is not None and len(weights) != len(classes):
            raise ValueError(f"{self.name} has {len(weights)} class weights for {len(classes)} classes")


def _require_scenes(split: str, expected: str) -> None:
    if split != expected:
        raise ValueError(f"{SCENES} has no split {split!r} for this; expected {expected!r}")


def _grid_size(crop: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return the size of a crop in grid positions.

    >>> _grid_size((192, 256), 8)
    (24, 32)
    """
    if crop[0] % stride or crop[1] % stride:
        raise ValueError(f"a crop of {crop[0]} x {crop[1]} pixels is not a multiple of the grid's stride {stride}")
    return crop[0] // stride, crop[1] // stride
