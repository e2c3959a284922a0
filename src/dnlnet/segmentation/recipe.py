"""Semantic segmentation as a system: what the rest of the package asks of it, and where it is.

Recipes and data sets are known without torch; what needs it imports it where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dnlnet.data.catalog import Samples, find_data_set, required_folder
from dnlnet.data.classes import Classes
from dnlnet.data.validated import validated
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.errors import unknown
from dnlnet.segmentation.data.check import PixelReport, check_pixels, require_labels
from dnlnet.segmentation.data.sets import DATA_SETS, find_labels
from dnlnet.segmentation.data.unpacked import unpack_into
from dnlnet.segmentation.data.views import View
from dnlnet.segmentation.recipes import segmentation_recipes
from dnlnet.segmentation.schema import Evaluation, SegmentationRecipe, SegmentorModel

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dnlnet.export import Deployed, Query
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult
    from dnlnet.segmentation.metric import ConfusionMatrix
    from dnlnet.segmentation.outputs import SegmentationOutputs
    from dnlnet.segmentation.predictor import SegmentationModel
    from dnlnet.segmentation.task import SegmentationTask

SCENES = "scenes"  # generated, so they have no folder


class Segmentation:
    """Classes of pixels."""

    name = "segmentation"
    recipe_type = SegmentationRecipe
    data_sets = DATA_SETS
    starter = "folder-mbv2_frozen-dnl"
    unit = "images"
    class_score = "IoU"
    evaluation_options = ("whole", "window", "scales", "flip")
    score_files = ("picture",)
    output_options = ("submission", "max_pixels")
    pipeline = "image-segmentation"
    example = "picture.jpg"
    use = 'model.predict("picture.jpg").overlay()  # (H, W, 3), the classes over the picture'

    def recipes(self) -> Iterable[SegmentationRecipe]:
        """Every recipe."""
        return segmentation_recipes()

    def build_model(
        self,
        model: SegmentorModel,
        classes: int,
        *,
        weights: bool = True,
        report: Callable[[str], None] = lambda _: None,
    ) -> nn.Module:
        """The network of a recipe.

        Args:
            model: the recipe's model.
            classes: number of classes of its data.
            weights: load the pretrained weights that it names; False leaves the network as it is initialised.
            report: called with what became of the tensors of a file.

        >>> import torch
        >>> model = SegmentorModel(network="tiny", weights=None, width=64, variant="dnl")
        >>> SYSTEM.build_model(model, classes=6)(torch.rand(1, 3, 32, 32)).logits.shape
        torch.Size([1, 6, 32, 32])
        """
        from dnlnet.recipes.model import build_backbone
        from dnlnet.segmentation.frozen import FrozenSegmentor
        from dnlnet.segmentation.network import Segmentor
        from dnlnet.segmentation.tiny import TinySegmentor

        if model.network == "tiny":
            return TinySegmentor(classes, model.width // 2, model.variant, preset=model.preset, **model.block)
        if model.network == "frozen":
            return FrozenSegmentor(
                build_backbone(model, model.output_stride, weights, report, model.dilations),
                classes,
                model.variant,
                stages=model.stages,
                width=model.width,
                reduce=model.reduce,
                subpixels=model.subpixels,
                detail=model.detail,
                preset=model.preset,
                **model.block,
            )
        return Segmentor(
            build_backbone(model, model.output_stride, weights, report, model.dilations),
            classes,
            model.variant,
            width=model.width,
            head=model.head,
            fused_width=model.fused_width,
            auxiliary=model.auxiliary,
            auxiliary_width=model.auxiliary_width,
            auxiliary_bias=model.auxiliary_bias,
            dilation=model.head_dilation,
            auxiliary_dilation=model.auxiliary_dilation,
            join_input=model.join_input,
            align_corners=model.align_corners,
            preset=model.preset,
            **model.block,
        )

    def describe_layers(self, model: SegmentorModel) -> str:
        """What the network is built on, in words."""
        return {"tiny": "four convolutions", "frozen": f"features of {model.backbone}"}.get(
            model.network, model.backbone
        )

    def training_size(self, recipe: SegmentationRecipe) -> tuple[int, ...]:
        """Height and width of what is trained on."""
        return recipe.data.crop

    def training_part(self, network: nn.Module) -> nn.Module:
        """What a batch of that size can be run through: the whole network."""
        return network

    def cost_size(self, recipe: SegmentationRecipe) -> tuple[int, ...] | None:
        """Height and width of the image that the network's cost is counted for."""
        return recipe.data.crop

    def image_text(self, recipe: SegmentationRecipe) -> str:
        """The size of what is trained on, in words."""
        return "{}x{}".format(*recipe.data.crop)

    def class_count(self, recipe: SegmentationRecipe) -> int | None:
        """How many classes the recipe's data have, if that is known without the data."""
        from dnlnet.segmentation.data.scenes import CLASSES as SCENE_CLASSES

        if recipe.data.name == SCENES:
            return len(SCENE_CLASSES)
        classes = find_data_set(DATA_SETS, recipe.data.name).classes
        return None if classes is None else len(classes)

    def training_data(
        self,
        recipe: SegmentationRecipe,
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
        """Random crops.

        Args:
            recipe: names the data set and how crops are drawn.
            root: folder of the data set; generated scenes need none.
            split: other than the recipe's own.
            phase: of the schedule, from 0; one that trains the backbone learns from pixels.
            seed: of the crops.
            unpacked: a folder to keep decoded pictures in; see `dnlnet.segmentation.data.unpacked`.
            cache: a folder to keep features of a frozen backbone in; None computes them again and again.
            report: called with the number of images.
            progress: called while features are computed.
        """
        from dnlnet.segmentation.caching import in_positions, open_features, trains_backbone
        from dnlnet.segmentation.data.features import FeatureCrops
        from dnlnet.segmentation.data.samples import SceneSamples, TrainingCrops
        from dnlnet.segmentation.data.scenes import CLASSES as SCENE_CLASSES
        from dnlnet.segmentation.data.scenes import HELD_OUT_SEED

        data = recipe.data
        split = data.train if split is None else split
        if data.name == SCENES:
            _require_weights(recipe, SCENE_CLASSES)
            _require_scenes(split, "train")
            count = recipe.schedule.iterations * recipe.schedule.batch
            return SceneSamples(count, data.crop, HELD_OUT_SEED + 1 + seed)
        images = _data_set(data.name).open(required_folder(recipe.name, data.name, root), split)
        _require_weights(recipe, images.classes)
        require_labels(images.require_complete(), report)
        report(f"{images.name}: {len(images)} images to train on")
        if recipe.model.network == "frozen" and not trains_backbone(recipe, phase):
            source, strides = open_features(recipe, images, data.feature_views(), cache, report, progress)
            detail = recipe.model.detail is not None
            crop = in_positions(data.crop, strides[int(detail)])
            return FeatureCrops(images, source, data.feature_views(), crop, strides, seed, detail=detail)
        if unpacked is not None:
            images = unpack_into(images, unpacked)
        return TrainingCrops(images, data.augmentation(), seed)

    def test_data(self, recipe: SegmentationRecipe, root: Path | None, split: str) -> Samples:
        """The whole images of a split."""
        from dnlnet.segmentation.data.samples import SceneSamples, WholeImages
        from dnlnet.segmentation.data.scenes import HELD_OUT_COUNT, HELD_OUT_SEED

        name = recipe.data.name
        if name == SCENES:
            _require_scenes(split, "val")
            return SceneSamples(HELD_OUT_COUNT, recipe.data.crop, HELD_OUT_SEED)
        return WholeImages(_data_set(name).open(required_folder(recipe.name, name, root), split))

    def validation_data(
        self,
        recipe: SegmentationRecipe,
        root: Path | None,
        split: str,
        *,
        cache: Path | None = None,
        report: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Samples:
        """What a run is scored on while it trains: the images of a split, or their features."""
        from dnlnet.segmentation.caching import open_features, trains_backbone
        from dnlnet.segmentation.data.features import WholeFeatures
        from dnlnet.segmentation.data.samples import WholeImages

        whole = self.test_data(recipe, root, split)
        last = len(recipe.schedule.then)
        if recipe.model.network != "frozen" or not isinstance(whole, WholeImages) or trains_backbone(recipe, last):
            return whole
        source, _ = open_features(recipe, whole.images, [View(1.0)], cache, report, progress)
        return WholeFeatures(whole.images, source, detail=recipe.model.detail is not None)

    def training_task(
        self,
        recipe: SegmentationRecipe,
        classes: Classes,
        validation: Samples | None = None,
        *,
        average: Callable[[Tensor], Tensor] = lambda number: number,
        device: torch.device | str = "cpu",
        report: Callable[[str], None] = lambda _: None,
    ) -> SegmentationTask:
        """Return what is learnt; `average` is over the processes that share a batch.

        A run is scored as its recipe is tested, in its windows and size, but at one scale and not mirrored.
        """
        import torch

        from dnlnet.segmentation.losses import SegmentationLoss
        from dnlnet.segmentation.task import FeatureTask, SegmentationTask

        weights = recipe.loss.class_weights
        _require_weights(recipe, classes)
        loss = SegmentationLoss(
            None if weights is None else torch.tensor(weights),
            recipe.loss.ohem,
            recipe.loss.auxiliary_weight,
            average=average,
        )
        kind = FeatureTask if recipe.model.network == "frozen" else SegmentationTask
        once = recipe.evaluation.model_copy(update={"scales": (1.0,), "flip": False})
        return kind(classes, loss.to(device), once.inference(recipe.model))

    def test_task(
        self, recipe: SegmentationRecipe, classes: Classes, data: Samples, options: Mapping[str, Any]
    ) -> SegmentationTask:
        """What is scored: images are fed to the network as the recipe says, or as the options say."""
        from dnlnet.segmentation.losses import SegmentationLoss
        from dnlnet.segmentation.task import SegmentationTask

        evaluation = _as_asked(recipe.evaluation, **options)
        return SegmentationTask(classes, SegmentationLoss(), evaluation.inference(recipe.model))

    def scores(self, metric: ConfusionMatrix, classes: Classes, title: str) -> Scores:
        """IoU of each class, their mean, and pixel accuracy."""
        from dnlnet.lens.show.confusion_figure import confusion_figure
        from dnlnet.lens.show.panels import save_figure

        by_class = dict(zip(classes.names, metric.known_iou(), strict=True))
        caption = ", ".join(f"{name} {value:.4f}" for name, value in metric.scores().items())
        if not metric.count:
            caption = "no labelled pixel: the labels are all ignored, so that there is no score"
        values = metric.known_scores()
        return Scores(
            values,
            [Table(title, class_bars("IoU", by_class), caption)],
            {**values, "by_class": by_class, "confusion": metric.counts.tolist()},
            files={"picture": lambda path: save_figure(confusion_figure(metric.counts, classes), path)},
        )

    def fold(self, network: nn.Module) -> nn.Module:
        """The same function with batch norms folded into convolutions."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms

        return fold_batch_norms(network, torch.zeros(1, 3, 64, 64))

    def predictor(
        self, recipe: SegmentationRecipe, network: nn.Module, classes: Classes, device: torch.device | str
    ) -> SegmentationModel:
        """What predicts pictures as the recipe says."""
        from dnlnet.segmentation.predictor import SegmentationModel

        inference = recipe.evaluation.inference(recipe.model)
        return SegmentationModel(network, classes, inference, device)

    def outputs(self, predictor: SegmentationModel, **options: Any) -> SegmentationOutputs:
        """The files that predictions become."""
        from dnlnet.segmentation.outputs import SegmentationOutputs

        return SegmentationOutputs(predictor, **options)

    def attend(
        self, models: Mapping[str, SegmentationModel], request: AttendRequest, data: Path | None, name: str
    ) -> AttendResult:
        """Show what the models attend to in pictures, with the labels of those that are of the data set."""
        from dnlnet.lens.show.attend_images import attend_images

        labels = None
        if data is not None:
            labels = partial(find_labels, list(_data_set(name).open_all(data)[0].values()))
        return attend_images(models, request, labels)

    def single_pass(self, predictor: SegmentationModel) -> Callable[[Tensor], Tensor]:
        """A function to the logits (1, K, H, W) of an image (3, H, W) in 0..255, of one pass over the whole image."""
        return predictor.single_pass().logits

    def check(self, opened: Any, progress: Callable[[], None] | None = None) -> PixelReport:
        """Read every file of a split."""
        return check_pixels(opened, progress)

    def deployed(
        self, recipe: SegmentationRecipe, network: nn.Module, queries: Sequence[Query], part: str
    ) -> Deployed:
        """The network as other programs get it."""
        from dnlnet.segmentation.export import DeployedSegmentor

        if part != "whole":
            raise ValueError(f"only a detector has the part {part}; this is a segmentation model")
        return DeployedSegmentor(network, queries)

    def deployed_size(self, recipe: SegmentationRecipe) -> tuple[int, int]:
        """Height and width that it is made for."""
        return recipe.evaluation.window or recipe.data.crop


SYSTEM = Segmentation()


def _data_set(name: str) -> Any:
    if name not in DATA_SETS:
        raise unknown("data set", name, [*DATA_SETS, SCENES])
    return DATA_SETS[name]


def _require_weights(recipe: SegmentationRecipe, classes: Classes) -> None:
    weights = recipe.loss.class_weights
    if weights is not None and len(weights) != len(classes):
        raise ValueError(f"{recipe.name} has {len(weights)} class weights for {len(classes)} classes")


def _require_scenes(split: str, expected: str) -> None:
    if split != expected:
        raise ValueError(f"{SCENES} has no split {split!r} for this; expected {expected!r}")


def _as_asked(
    evaluation: Evaluation,
    whole: bool = False,
    window: int | None = None,
    scales: str | None = None,
    flip: bool | None = None,
) -> Evaluation:
    """The recipe's way of feeding images to the network, with what the options replace."""
    content = evaluation.model_dump()
    if whole and window is not None:
        raise ValueError("--whole and --window contradict each other; give one of them")
    if whole:
        content |= {"window": None, "stride": None, "scales": (1.0,), "flip": False}
    if window is not None:
        stride = max(1, round(window * 2 / 3))
        content |= {"window": (window, window), "stride": (stride, stride)}
    if scales is not None:
        try:
            content["scales"] = tuple(float(scale) for scale in scales.split(","))
        except ValueError:
            raise ValueError(f"--scales {scales}: expected numbers separated by commas, such as 0.5,1,1.5") from None
    if flip is not None:
        content["flip"] = flip
    return validated(Evaluation, content)
