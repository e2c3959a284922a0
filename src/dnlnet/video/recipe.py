"""Action recognition as a system: what the rest of the package asks of it, and where it is.

Recipes and data sets are known without torch; what needs it imports it where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dnlnet.data.catalog import Samples, find_data_set, required_folder
from dnlnet.data.classes import Classes
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.video.data.check import VideoReport, check_videos
from dnlnet.video.data.sets import DATA_SETS
from dnlnet.video.data.videos import LabelledVideos
from dnlnet.video.recipes import video_recipes
from dnlnet.video.schema import VideoClassifierModel, VideoRecipe

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dnlnet.backbones import SlowOnly
    from dnlnet.export import Deployed, Query
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult
    from dnlnet.video.metric import TopK
    from dnlnet.video.network import VideoClassifier
    from dnlnet.video.outputs import VideoOutputs
    from dnlnet.video.predictor import VideoModel
    from dnlnet.video.task import VideoTask

_IMAGE_NETWORKS = {"slow_only_r50": "resnet50", "slow_only_r101": "resnet101"}  # whose weights they are inflated from


class VideoClassification:
    """Classes of videos."""

    name = "video"
    recipe_type = VideoRecipe
    data_sets = DATA_SETS
    starter = "ucf6-r50-dnl"
    unit = "clips"
    class_score = "top1"
    evaluation_options = ()
    score_files = ()
    output_options = ()
    pipeline = "video-classification"
    example = "video.mp4"
    use = 'model.predict("video.mp4").top(5)  # the most confident classes'

    def recipes(self) -> Iterable[VideoRecipe]:
        """Every recipe."""
        return video_recipes()

    def build_model(
        self,
        model: VideoClassifierModel,
        classes: int,
        *,
        weights: bool = True,
        report: Callable[[str], None] = lambda _: None,
    ) -> VideoClassifier:
        """The network of a recipe; weights are inflated into its backbone before the blocks are put there.

        >>> import torch
        >>> with torch.device("meta"):
        ...     network = SYSTEM.build_model(VideoClassifierModel(), classes=400, weights=False)
        >>> sum(parameter.numel() for parameter in network.parameters())
        32454096
        """
        from dnlnet.backbones import SlowOnly
        from dnlnet.video.network import VideoClassifier

        backbone = SlowOnly(model.backbone, stride_in_1x1=model.stride_in_1x1)
        if weights and model.weights is not None:
            _load(backbone, model.weights, report)
        return VideoClassifier(
            backbone,
            classes,
            model.variant,
            model.placement,
            dropout=model.dropout,
            preset=model.preset,
            **model.block,
        )

    def describe_layers(self, model: VideoClassifierModel) -> str:
        """What the network is built on, in words."""
        return model.backbone

    def training_size(self, recipe: VideoRecipe) -> tuple[int, ...]:
        """Frames, height and width of what is trained on."""
        return recipe.data.frames, recipe.data.crop, recipe.data.crop

    def training_part(self, network: nn.Module) -> nn.Module:
        """What a batch of that size can be run through: the whole network."""
        return network

    def cost_size(self, recipe: VideoRecipe) -> tuple[int, ...] | None:
        """Frames, height and width of the clip that the network's cost is counted for, a test's."""
        return recipe.data.frames, recipe.evaluation.short_side, recipe.evaluation.short_side

    def image_text(self, recipe: VideoRecipe) -> str:
        """The size of what is trained on, in words."""
        return f"{recipe.data.frames}x{recipe.data.crop}x{recipe.data.crop}"

    def class_count(self, recipe: VideoRecipe) -> int | None:
        """How many classes the whole data set has, if that is known without its lists."""
        return find_data_set(DATA_SETS, recipe.data.name).class_count

    def training_data(
        self,
        recipe: VideoRecipe,
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
        """Random clips; `report` is called with the number of videos."""
        from dnlnet.video.data.samples import TrainingClips

        if cache is not None:
            raise ValueError("training.cache is for segmentation recipes with a frozen backbone")
        if unpacked is not None:
            raise ValueError("--unpack is for crops of labelled images; of videos only the needed frames are decoded")
        data = recipe.data
        videos = _open(recipe, root, data.train if split is None else split)
        missing = f"; {len(videos.missing)} listed videos are not there" if videos.missing else ""
        report(f"{videos.name}: {len(videos)} videos to train on{missing}")
        return TrainingClips(videos, data.clip(), data.short_sides, data.crop, data.flip, seed)

    def test_data(self, recipe: VideoRecipe, root: Path | None, split: str) -> Samples:
        """All views of the videos of a split."""
        from dnlnet.video.data.samples import TestViews

        views = recipe.evaluation
        return TestViews(_open(recipe, root, split), recipe.data.clip(), views.clips, views.crops, views.short_side)

    def validation_data(
        self,
        recipe: VideoRecipe,
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
        recipe: VideoRecipe,
        classes: Classes,
        validation: Samples | None = None,
        *,
        average: Callable[[Tensor], Tensor] = lambda number: number,
        device: torch.device | str = "cpu",
        report: Callable[[str], None] = lambda _: None,
    ) -> VideoTask:
        """What is learnt; `report` is called with videos that cannot be read."""
        from dnlnet.video.task import VideoTask

        return VideoTask(classes, recipe.data.pixels(), recipe.evaluation.views_per_batch, report)

    def test_task(
        self, recipe: VideoRecipe, classes: Classes, data: Samples, options: Mapping[str, Any]
    ) -> VideoTask:
        """What is scored."""
        return self.training_task(recipe, classes)

    def scores(self, metric: TopK, classes: Classes, title: str) -> Scores:
        """Top-1 and top-5 accuracy over all views of a video, and the first of each class."""
        by_class = dict(zip(classes.names, metric.class_scores(), strict=True))
        values = metric.scores()
        caption = ", ".join([*(f"{name} {value:.4f}" for name, value in values.items()), f"{metric.count} videos"])
        files = {"unreadable": metric.skipped, "damaged": metric.notes}
        return Scores(
            values,
            [Table(title, class_bars("top1", by_class), caption)],
            {**values, "videos": metric.count, "by_class": by_class, **files},
            [
                *(f"not counted: {reason}" for reason in metric.skipped),
                *(f"counted all the same: {note}" for note in metric.notes),
            ],
        )

    def fold(self, network: nn.Module) -> nn.Module:
        """The same function with batch norms folded into convolutions."""
        import torch

        from dnlnet.backbones.fold import fold_batch_norms

        return fold_batch_norms(network, torch.zeros(1, 3, 2, 64, 64))

    def predictor(
        self, recipe: VideoRecipe, network: nn.Module, classes: Classes, device: torch.device | str
    ) -> VideoModel:
        """What predicts videos as the recipe says."""
        from dnlnet.video.predictor import VideoModel

        views = recipe.evaluation
        return VideoModel(
            network,
            classes,
            recipe.data.clip(),
            recipe.data.pixels(),
            clips=views.clips,
            crops=views.crops,
            short_side=views.short_side,
            views_per_batch=views.views_per_batch,
            device=device,
        )

    def outputs(self, predictor: VideoModel, **options: Any) -> VideoOutputs:
        """The files that predictions become."""
        from dnlnet.video.outputs import VideoOutputs

        return VideoOutputs(predictor, **options)

    def attend(
        self, models: Mapping[str, VideoModel], request: AttendRequest, data: Path | None, name: str
    ) -> AttendResult:
        """Show what the models attend to in the clip in the middle of each video."""
        from dnlnet.video.attend_clips import attend_clips

        if data is not None:
            raise ValueError("--data shows the labels of pixels; that of a video model has none: leave it out")
        return attend_clips(models, request)

    def single_pass(self, predictor: VideoModel) -> Callable[[Tensor], Tensor]:
        """An error: a video has no class for each pixel."""
        raise ValueError("is a video model; this is for segmentation models")

    def check(self, opened: Any, progress: Callable[[], None] | None = None) -> VideoReport:
        """Decode every video of a split."""
        return check_videos(opened, progress)

    def deployed(self, recipe: VideoRecipe, network: nn.Module, queries: Sequence[Query], part: str) -> Deployed:
        """The network as other programs get it."""
        from dnlnet.video.export import DeployedVideo

        if part != "whole":
            raise ValueError(f"only a detector has the part {part}; this is a video model")
        return DeployedVideo(network, recipe.data.pixels(), recipe.data.frames, queries)

    def deployed_size(self, recipe: VideoRecipe) -> tuple[int, int]:
        """Height and width that it is made for."""
        return recipe.evaluation.short_side, recipe.evaluation.short_side


SYSTEM = VideoClassification()


def _open(recipe: VideoRecipe, root: Path | None, split: str) -> LabelledVideos:
    name = recipe.data.name
    return find_data_set(DATA_SETS, name).open(required_folder(recipe.name, name, root), split)


def _load(backbone: SlowOnly, source: str, report: Callable[[str], None]) -> None:
    from dnlnet.backbones import Backbone, inflate, load_weights
    from dnlnet.recipes.schema import IMAGENET

    if source != IMAGENET:
        report(f"{source}: {load_weights(backbone, Path(source))}")
        return
    if backbone.name not in _IMAGE_NETWORKS:
        raise ValueError(f"{backbone.name} has no ImageNet weights; give a file, or none with model.weights=null")
    image = Backbone(_IMAGE_NETWORKS[backbone.name], 32, pretrained=True)
    backbone.load_state_dict(inflate(image.body.state_dict(), backbone))
