"""Recipe of detection with instance masks.

Recipes and data sets load without torch; methods import it when needed.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from dnlnet.data.catalog import Samples
from dnlnet.data.classes import Classes
from dnlnet.detection.data.check import InstanceReport, check_instances
from dnlnet.detection.data.sets import DATA_SETS
from dnlnet.detection.schema import DetectorModel, InstanceData
from dnlnet.detection.sources import SOURCES
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.recipe import HubCard, Recipe

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dnlnet.detection.data.features import FlippedView
    from dnlnet.detection.data.objects import InstanceImages
    from dnlnet.detection.data.samples import TestInstances
    from dnlnet.detection.export import ExportableDetector, ExportablePyramid
    from dnlnet.detection.predictor import DetectionModel
    from dnlnet.detection.task import DetectionTask
    from dnlnet.recipes.features import Source

_DIVISOR = 32  # batches are padded to multiples of it
# Backbone settings that the features depend on, besides the weights.
_FEATURE_SETTINGS = {"backbone", "stride_in_1x1", "ceil_pool", "caffe_pixels", "pixels"}


class DetectionRecipe(Recipe):
    """Recipe for detecting the boxes, classes and masks of objects."""

    task: Literal["detection"] = "detection"
    model: DetectorModel
    data: InstanceData

    data_sets = DATA_SETS
    starter = "coco-micro-mbv2_frozen-dnl-c4"
    class_score = "box AP"
    score_files = ("results",)
    card = HubCard(
        "object-detection",
        "image.jpg",
        'model.predict("image.jpg").overlay()  # (H, W, 3), objects drawn on the image',
    )
    sources = SOURCES

    @property
    def uses_features(self) -> bool:
        """True if training uses features of a frozen backbone, which can be cached."""
        return self.model.frozen

    @model_validator(mode="after")
    def _frozen_layers_stay_frozen(self) -> Self:
        if self.model.frozen and any(phase.unfrozen for phase in self.schedule.then):
            raise ValueError(
                "with model.frozen=true all phases train on features, and cannot unfreeze layers; set it to false"
            )
        return self

    @property
    def training_size(self) -> tuple[int, ...]:
        """Height and width of the smallest images of a batch."""
        side = -(-self.data.short_side // _DIVISOR) * _DIVISOR
        return side, side

    @property
    def cost_size(self) -> None:
        """None: the cost of a detector depends on the content of the image."""
        return None

    @property
    def size_text(self) -> str:
        """Range of the sides of training images."""
        return f"{self.data.short_side}..{self.data.long_side}"

    def build(self, classes: int, *, pretrained: bool = True, progress: Progress = SILENT) -> "nn.Module":
        """Build the detector. Weights are loaded into its backbone before the blocks are inserted.

        >>> import torch
        >>> from dnlnet.registry import find_recipe
        >>> with torch.device("meta"):
        ...     detector = find_recipe("coco-r50-dnl-c4").build(classes=80, pretrained=False)
        >>> detector.roi_heads.box_predictor.cls_score.out_features
        81
        """
        from dnlnet.detection.network import Detector
        from dnlnet.recipes.backbone import build_backbone

        return Detector(build_backbone(self.model, 32, pretrained, progress), classes, self.model)

    def training_samples(self, run: RunContext, split: str, phase: int = 0) -> Samples:
        """Return resized and flipped images with their objects, or features with them."""
        from dnlnet.detection.data.samples import TrainingInstances

        if run.unpacked is not None:
            raise ValueError("--unpack is for crops of labelled images; images with objects are read whole")
        images = self.open(run.data, split)
        flip = self.data.flip
        flips = [flipped for flipped, share in ((False, 1 - flip), (True, flip)) if share > 0]
        source = self._features(images.require_complete().for_training(), flips, run)
        samples = TrainingInstances(images, self.data, run.seed, source)
        left_out = ", ".join(f"{reason} {count}" for reason, count in samples.images.left_out.items())
        without = f"; not used for training: {left_out}" if left_out else ""
        run.progress.say(f"{images.name}: {len(samples)} images to train on{without}")
        return samples

    def validation_samples(self, run: RunContext, split: str) -> Samples:
        """Return the images of a split, or their features."""
        from dnlnet.detection.data.samples import TestInstances

        images = self.open(run.data, split)
        return TestInstances(images, self.data, self._features(images.require_complete(), [False], run))

    def test_samples(self, root: Path | None, split: str) -> "TestInstances":
        """Return the images of a split, resized as for training."""
        from dnlnet.detection.data.samples import TestInstances

        return TestInstances(self.open(root, split), self.data)

    def training_task(self, classes: Classes, run: RunContext, validation: Samples | None = None) -> "DetectionTask":
        """Return the task, scored against the objects of the validation data."""
        from dnlnet.detection.data.samples import TestInstances
        from dnlnet.detection.task import DetectionTask

        return DetectionTask(classes, validation.images.truth() if isinstance(validation, TestInstances) else None)

    def fold(self, network: "nn.Module") -> "nn.Module":
        """Return the detector with batch norms folded into convolutions."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms

        width = self.model.width
        # Parts with batch norms, and the shape of an example input of each.
        normed = {
            "backbone": (3, 64, 64),
            "roi_heads.box_head": (width, 7, 7),
            "roi_heads.mask_head": (width, 14, 14),
        }
        folded = deepcopy(network)
        for part, shape in normed.items():
            folded.set_submodule(part, fold_batch_norms(network.get_submodule(part), torch.zeros(1, *shape)))
        return folded

    def in_bfloat16(self, network: "nn.Module") -> "nn.Module":
        """Return a copy whose convolutions and linear layers compute in bfloat16, which is too coarse for boxes."""
        from dnlnet.backbones.bfloat16 import InBfloat16

        heads = ("box_head", "box_predictor", "mask_head", "mask_predictor")
        copy = deepcopy(network)
        for part in ("backbone", "rpn.head", *(f"roi_heads.{head}" for head in heads)):
            copy.set_submodule(part, InBfloat16(network.get_submodule(part)))
        return copy

    def measured_part(self, network: "nn.Module") -> "nn.Module":
        """Return the backbone with the pyramid, because the heads need proposals."""
        return network.get_submodule("backbone")

    def predictor(
        self, network: "nn.Module", classes: Classes, device: "torch.device | str" = "cpu"
    ) -> "DetectionModel":
        """Return the predictor, which resizes images as in training."""
        from dnlnet.detection.network import Detector
        from dnlnet.detection.predictor import DetectionModel

        assert isinstance(network, Detector)
        return DetectionModel(network, classes, self.data, device)

    def exportable(
        self, network: "nn.Module", *, part: Literal["whole", "pyramid"] = "whole"
    ) -> "ExportableDetector | ExportablePyramid":
        """Return the exportable detector, or only its backbone and pyramid."""
        from dnlnet.detection.export import ExportableDetector, ExportablePyramid

        size = self.data.short_side, self.data.short_side * 4 // 3
        return ExportablePyramid(network, size) if part == "pyramid" else ExportableDetector(network, size)

    def _features(
        self, images: "InstanceImages", flips: Sequence[bool], run: RunContext
    ) -> "Source[FlippedView] | None":
        """Return the source of the images' features, or None if the network is not frozen."""
        if not self.model.frozen:
            return None
        from dnlnet.detection.data.features import Extractor, FlippedView
        from dnlnet.detection.network import Detector
        from dnlnet.recipes.features import feature_source

        network = self.network_with_features(run, len(images.classes))
        assert isinstance(network, Detector)
        settings = self.model.model_dump(mode="json", include=_FEATURE_SETTINGS)
        extractor = run.once("extractor", lambda: Extractor(network, self.data, settings, self.training.precision))
        wanted = [(image.path, FlippedView(image.size, flipped)) for image in images.images for flipped in flips]
        return feature_source(extractor, wanted, run)

    @classmethod
    def check_data(cls, opened: Any, progress: Progress = SILENT) -> InstanceReport:
        """Read every image of a split and draw every object."""
        return check_instances(opened, progress)
