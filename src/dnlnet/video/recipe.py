"""Recipe of action recognition.

Recipes and data sets load without torch; methods import it when needed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from dnlnet.data.catalog import Samples
from dnlnet.data.classes import Classes
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.model import IMAGENET
from dnlnet.recipes.recipe import HubCard, Recipe
from dnlnet.video.data.check import VideoReport, check_videos
from dnlnet.video.data.sets import DATA_SETS
from dnlnet.video.schema import MOST_SEEN, AnyVideoModel, FrozenModel, VideoData, Views
from dnlnet.video.sources import SOURCES

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dnlnet.deployment import Query
    from dnlnet.recipes.features import Source
    from dnlnet.video.data.features import Crop
    from dnlnet.video.data.videos import LabelledVideos
    from dnlnet.video.export import ExportableVideo
    from dnlnet.video.predictor import VideoModel
    from dnlnet.video.task import VideoTask

_IMAGE_NETWORKS = {"slow_only_r50": "resnet50", "slow_only_r101": "resnet101"}  # sources of inflated weights
_FEATURE_SETTINGS = {"backbone", "output_stride", "stride_in_1x1", "ceil_pool", "caffe_pixels", "pixels"}


class VideoRecipe(Recipe):
    """Recipe for classifying videos."""

    task: Literal["video"] = "video"
    model: AnyVideoModel
    data: VideoData
    evaluation: Views = Views()

    data_sets = DATA_SETS
    starter = "ucf6-mbv2_frozen-dnl"
    unit = "clips"
    class_score = "top1"
    card = HubCard(
        "video-classification", "video.mp4", 'model.predict("video.mp4").top(5)  # the most confident classes'
    )
    sources = SOURCES

    @property
    def uses_features(self) -> bool:
        """True if training uses features of a frozen backbone, which can be cached."""
        return isinstance(self.model, FrozenModel)

    @model_validator(mode="after")
    def _features_are_of_the_tested_frames(self) -> Self:
        if not isinstance(self.model, FrozenModel):
            return self
        side, data = self.evaluation.short_side, self.data
        if not data.aligned or data.crop != side or data.short_sides != (side, side):
            raise ValueError(
                "a frozen network is trained and tested on features of the same frames: set data.aligned=true, and "
                f"data.short_sides=[{side}, {side}] and data.crop={side} as evaluation.short_side; got aligned="
                f"{str(data.aligned).lower()}, short_sides={list(data.short_sides)} and crop={data.crop}"
            )
        if "backbone." not in self.training.frozen or any(phase.unfrozen for phase in self.schedule.then):
            raise ValueError(
                "the backbone of a frozen network is not trained: training.frozen must have backbone., and no phase "
                "of schedule.then may have unfrozen layers"
            )
        return self

    @model_validator(mode="after")
    def _views_fit_memory(self) -> Self:
        if self.seen_pixels() > MOST_SEEN:
            views, side = self.evaluation, self.evaluation.short_side
            raise ValueError(
                f"{views.clips} x {views.crops} views of {self.data.frames} frames of {side} x {side} are "
                f"{self.seen_pixels():,} pixels per video; expected at most {MOST_SEEN:,}: lower evaluation.clips, "
                "evaluation.crops, evaluation.short_side or data.frames"
            )
        return self

    def seen_pixels(self) -> int:
        """Return the number of pixels in all views of a video, which are in memory at the same time."""
        views = self.evaluation
        return views.clips * views.crops * self.data.frames * views.short_side**2

    @property
    def training_size(self) -> tuple[int, ...]:
        """Frames, height and width of a training clip."""
        return self.data.frames, self.data.crop, self.data.crop

    @property
    def cost_size(self) -> tuple[int, ...]:
        """Frames, height and width of a test clip."""
        return self.data.frames, self.evaluation.short_side, self.evaluation.short_side

    def build(self, classes: int, *, pretrained: bool = True, progress: Progress = SILENT) -> "nn.Module":
        """Build the network. Weights are inflated into its backbone before the blocks are inserted.

        >>> import torch
        >>> from dnlnet.registry import find_recipe
        >>> with torch.device("meta"):
        ...     network = find_recipe("kinetics-r50-baseline").build(classes=400, pretrained=False)
        >>> sum(parameter.numel() for parameter in network.parameters())
        32454096
        """
        from dnlnet.backbones import Backbone, SlowOnly, inflate, load_weights
        from dnlnet.recipes.backbone import build_backbone
        from dnlnet.video.frozen import FrozenClassifier
        from dnlnet.video.network import VideoClassifier

        if isinstance(self.model, FrozenModel):
            frozen = build_backbone(self.model, self.model.output_stride, pretrained, progress)
            return FrozenClassifier(frozen, classes, self.model)
        name, weights = self.model.backbone, self.model.weights
        backbone = SlowOnly(name, stride_in_1x1=self.model.stride_in_1x1)
        if pretrained and weights == IMAGENET:
            if name not in _IMAGE_NETWORKS:
                raise ValueError(f"{name} has no ImageNet weights; give a file or set model.weights=null")
            image = Backbone(_IMAGE_NETWORKS[name], 32, pretrained=True)
            backbone.load_state_dict(inflate(image.body.state_dict(), backbone))
        elif pretrained and weights is not None:
            progress.say(f"{weights}: {load_weights(backbone, Path(weights))}")
        return VideoClassifier(backbone, classes, self.model)

    def training_samples(self, run: RunContext, split: str, phase: int = 0) -> Samples:
        """Return random clips, or their features."""
        from dnlnet.video.data.features import FeatureClips
        from dnlnet.video.data.samples import TrainingClips

        if run.unpacked is not None:
            raise ValueError("--unpack is for crops of labelled images; only the needed frames of videos are decoded")
        videos = self.open(run.data, split)
        missing = f"; {len(videos.missing)} listed videos are missing" if videos.missing else ""
        run.progress.say(f"{videos.name}: {len(videos)} videos to train on{missing}")
        if self.uses_features:
            flips = [flipped for flipped, share in ((False, 1 - self.data.flip), (True, self.data.flip)) if share]
            source = self._features(videos, flips, run)
            return FeatureClips(videos, source, self.data, self.evaluation.crops, run.seed)
        return TrainingClips(videos, self.data, run.seed)

    def validation_samples(self, run: RunContext, split: str) -> Samples:
        """Return all views of the videos of a split, or their features."""
        from dnlnet.video.data.features import FeatureViews

        if not self.uses_features:
            return self.test_samples(run.data, split)
        videos = self.open(run.data, split)
        return FeatureViews(videos, self._features(videos, [False], run), self.data.clip(), self.evaluation)

    def test_samples(self, root: Path | None, split: str) -> Samples:
        """Return all views of the videos of a split."""
        from dnlnet.video.data.samples import TestViews

        return TestViews(self.open(root, split), self.data.clip(), self.evaluation)

    def training_task(self, classes: Classes, run: RunContext, validation: Samples | None = None) -> "VideoTask":
        """Return the task, which reports unreadable videos."""
        from dnlnet.video.task import VideoTask

        return VideoTask(classes, self.data.pixels(), self.evaluation.views_per_batch, run.progress)

    def predictor(self, network: "nn.Module", classes: Classes, device: "torch.device | str" = "cpu") -> "VideoModel":
        """Return the predictor, which uses the views of the recipe."""
        from dnlnet.video.predictor import VideoModel

        return VideoModel(network, classes, self.data, self.evaluation, device)

    def exportable(self, network: "nn.Module", *, with_maps: "Sequence[Query]" = ()) -> "ExportableVideo":
        """Return the exportable network, with the attention maps of these queries."""
        from dnlnet.video.export import ExportableVideo

        side = self.evaluation.short_side
        return ExportableVideo(network, (side, side), with_maps, self.data.pixels(), self.data.frames)

    def _features(self, videos: "LabelledVideos", flips: Sequence[bool], run: RunContext) -> "Source[Crop]":
        """Return the source of the videos' features."""
        from dnlnet.recipes.features import feature_source
        from dnlnet.video.data.features import Extractor, crops_of
        from dnlnet.video.frozen import FrozenClassifier

        network = self.network_with_features(run, len(videos.classes))
        assert isinstance(network, FrozenClassifier)
        settings = self.model.model_dump(mode="json", include=_FEATURE_SETTINGS)
        precision = self.training.precision
        extractor = run.once("extractor", lambda: Extractor(network, self.data, self.evaluation, settings, precision))
        wanted = crops_of(videos.require_usable(), self.evaluation.crops, flips)
        return feature_source(extractor, wanted, run, "videos")

    @classmethod
    def check_data(cls, opened: Any, progress: Progress = SILENT) -> VideoReport:
        """Decode every video of a split."""
        return check_videos(opened, progress)
