"""Detection with instance masks as a system: what the rest of the package asks of it, and where it is.

Recipes and data sets are known without torch; what needs it imports it where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dnlnet.data.catalog import Samples, find_data_set, required_folder
from dnlnet.data.classes import Classes
from dnlnet.detection.data.check import InstanceReport, check_instances
from dnlnet.detection.data.objects import InstanceImages
from dnlnet.detection.data.sets import DATA_SETS
from dnlnet.detection.recipes import detection_recipes
from dnlnet.detection.schema import DetectionRecipe, DetectorModel
from dnlnet.engine.scores import Scores, Table, class_bars, number
from dnlnet.files import write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dnlnet.detection.data.samples import WholeInstances
    from dnlnet.detection.metric import AveragePrecision, Kind
    from dnlnet.detection.network import Detector
    from dnlnet.detection.outputs import DetectionOutputs
    from dnlnet.detection.predictor import DetectionModel
    from dnlnet.detection.task import DetectionTask
    from dnlnet.export import Deployed, Query
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult

OUTPUT_STRIDE = 32
_DIVISOR = 32  # of the sides of the batches that a detector is given
_KINDS: tuple[Kind, ...] = ("box", "mask")


class Detection:
    """Boxes, classes and masks of objects."""

    name = "detection"
    recipe_type = DetectionRecipe
    data_sets = DATA_SETS
    starter = "coco-micro-dnl-c4"
    unit = "images"
    class_score = "box AP"
    evaluation_options = ()
    score_files = ("results",)
    output_options = ("threshold",)
    pipeline = "object-detection"
    example = "picture.jpg"
    use = 'model.predict("picture.jpg").overlay()  # (H, W, 3), the objects drawn into the picture'

    def recipes(self) -> Iterable[DetectionRecipe]:
        """Every recipe."""
        return detection_recipes()

    def build_model(
        self,
        model: DetectorModel,
        classes: int,
        *,
        weights: bool = True,
        report: Callable[[str], None] = lambda _: None,
    ) -> Detector:
        """The detector of a recipe; weights go into its backbone before the blocks do, whose names they do not know.

        >>> import torch
        >>> with torch.device("meta"):
        ...     detector = SYSTEM.build_model(DetectorModel(variant="dnl"), classes=80, weights=False)
        >>> detector.roi_heads.box_predictor.cls_score.out_features
        81
        """
        from dnlnet.detection.network import Detector
        from dnlnet.recipes.model import build_backbone

        return Detector(
            build_backbone(model, OUTPUT_STRIDE, weights, report),
            classes,
            model.variant,
            model.placement,
            after_activation=model.after_activation,
            boxes=model.boxes,
            proposals=model.proposals,
            anchor=model.anchor,
            box_beta=model.box_beta,
            border_anchors=model.border_anchors,
            min_overlap=model.min_overlap,
            preset=model.preset,
            **model.block,
        )

    def describe_layers(self, model: DetectorModel) -> str:
        """What the network is built on, in words."""
        return model.backbone

    def training_size(self, recipe: DetectionRecipe) -> tuple[int, ...]:
        """Height and width of the smallest images of a batch."""
        side = -(-recipe.data.short_side // _DIVISOR) * _DIVISOR
        return side, side

    def training_part(self, network: nn.Module) -> nn.Module:
        """What a batch of that size can be run through: the backbone with the pyramid, without the heads."""
        return network.get_submodule("backbone")

    def cost_size(self, recipe: DetectionRecipe) -> tuple[int, ...] | None:
        """None: what a detector costs depends on what is in the image."""
        return None

    def image_text(self, recipe: DetectionRecipe) -> str:
        """The sides of what is trained on, in words."""
        return f"{recipe.data.short_side}..{recipe.data.long_side}"

    def class_count(self, recipe: DetectionRecipe) -> int | None:
        """None: the annotations name the classes."""
        return None

    def training_data(
        self,
        recipe: DetectionRecipe,
        root: Path | None,
        *,
        split: str | None = None,
        phase: int = 0,
        seed: int = 0,
        unpacked: Path | None = None,
        cache: Path | None = None,
        report: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Samples:
        """Resized images with their objects; `report` is called with their number, and what is not learnt from."""
        from dnlnet.detection.data.samples import TrainingInstances

        if cache is not None:
            raise ValueError("training.cache is for segmentation recipes with a frozen backbone")
        if unpacked is not None:
            raise ValueError("--unpack is for crops of labelled images; images with objects are read whole")
        data = recipe.data
        images = _open(recipe, root, data.train if split is None else split)
        samples = TrainingInstances(images, data.short_side, data.long_side, data.flip, seed)
        left_out = ", ".join(f"{reason} {count}" for reason, count in samples.images.left_out.items())
        report(f"{images.name}: {len(samples)} images to train on; not learnt from: {left_out or 'none'}")
        return samples

    def test_data(self, recipe: DetectionRecipe, root: Path | None, split: str) -> WholeInstances:
        """The images of a split, resized as for training."""
        from dnlnet.detection.data.samples import WholeInstances

        return WholeInstances(_open(recipe, root, split), recipe.data.short_side, recipe.data.long_side)

    def validation_data(
        self,
        recipe: DetectionRecipe,
        root: Path | None,
        split: str,
        *,
        cache: Path | None = None,
        report: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Samples:
        """What a run is scored on while it trains: as `test_data`."""
        return self.test_data(recipe, root, split)

    def training_task(
        self,
        recipe: DetectionRecipe,
        classes: Classes,
        validation: Samples | None = None,
        *,
        average: Callable[[Tensor], Tensor] = lambda number: number,
        device: torch.device | str = "cpu",
        report: Callable[[str], None] = lambda _: None,
    ) -> DetectionTask:
        """What is learnt; it is scored against the objects of the validation data."""
        from dnlnet.detection.data.samples import WholeInstances
        from dnlnet.detection.task import DetectionTask

        return DetectionTask(classes, validation.images.truth() if isinstance(validation, WholeInstances) else None)

    def test_task(
        self, recipe: DetectionRecipe, classes: Classes, data: Samples, options: Mapping[str, Any]
    ) -> DetectionTask:
        """What is scored: against the objects of the data."""
        return self.training_task(recipe, classes, data)

    def scores(self, metric: AveragePrecision, classes: Classes, title: str) -> Scores:
        """COCO's average precision of boxes and masks, and that of each class."""
        values = metric.known_scores()
        by_class = {kind: dict(zip(classes.names, metric.class_scores(kind), strict=True)) for kind in _KINDS}
        statistics = dict.fromkeys(name.split()[1] for name in values)
        rows = [{"": kind} | {name: number(values[f"{kind} {name}"]) for name in statistics} for kind in _KINDS]
        return Scores(
            values,
            [Table("Box AP of the classes", class_bars("AP", by_class["box"])), Table(title, rows)],
            {**values, "by_class": by_class},
            files={"results": lambda path: write_json(path, metric.results())},
        )

    def fold(self, network: nn.Module) -> nn.Module:
        """The same detector with the batch norms of its parts folded into convolutions."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms
        from dnlnet.detection.network import PYRAMID_CHANNELS

        # Parts with batch norms, and the shape of an example of what each takes.
        normed = {
            "backbone": (3, 64, 64),
            "roi_heads.box_head": (PYRAMID_CHANNELS, 7, 7),
            "roi_heads.mask_head": (PYRAMID_CHANNELS, 14, 14),
        }
        folded = deepcopy(network)
        for part, shape in normed.items():
            folded.set_submodule(part, fold_batch_norms(network.get_submodule(part), torch.zeros(1, *shape)))
        return folded

    def predictor(
        self, recipe: DetectionRecipe, network: Detector, classes: Classes, device: torch.device | str
    ) -> DetectionModel:
        """What predicts pictures as the recipe says."""
        from dnlnet.detection.predictor import DetectionModel

        return DetectionModel(network, classes, recipe.data.short_side, recipe.data.long_side, device)

    def outputs(self, predictor: DetectionModel, **options: Any) -> DetectionOutputs:
        """The files that predictions become."""
        from dnlnet.detection.outputs import DetectionOutputs

        return DetectionOutputs(predictor, **options)

    def attend(
        self, models: Mapping[str, DetectionModel], request: AttendRequest, data: Path | None, name: str
    ) -> AttendResult:
        """Show what the models attend to in pictures."""
        from dnlnet.lens.show.attend_images import attend_images

        if data is not None:
            raise ValueError("--data shows the labels of pixels; that of a detection model has none: leave it out")
        return attend_images(models, request)

    def single_pass(self, predictor: DetectionModel) -> Callable[[Tensor], Tensor]:
        """An error: a detector has no class for each pixel."""
        raise ValueError("is a detection model; this is for segmentation models")

    def check(self, opened: Any, progress: Callable[[], None] | None = None) -> InstanceReport:
        """Read every file of a split, and look at every object."""
        return check_instances(opened, progress)

    def deployed(self, recipe: DetectionRecipe, network: Detector, queries: Sequence[Query], part: str) -> Deployed:
        """The detector, or its backbone and pyramid, as other programs get it."""
        from dnlnet.detection.export import DeployedDetector, DeployedPyramid

        if queries:
            raise ValueError("a detector is written without maps; dnlnet attend shows them")
        return DeployedPyramid(network) if part == "pyramid" else DeployedDetector(network)

    def deployed_size(self, recipe: DetectionRecipe) -> tuple[int, int]:
        """Height and width that it is made for: images are 3 high and 4 wide."""
        return recipe.data.short_side, recipe.data.short_side * 4 // 3


SYSTEM = Detection()


def _open(recipe: DetectionRecipe, root: Path | None, split: str) -> InstanceImages:
    name = recipe.data.name
    return find_data_set(DATA_SETS, name).open(required_folder(recipe.name, name, root), split)
