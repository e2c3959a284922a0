"""From a video recipe to what it describes: the network, the task, the data."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.backbones import Backbone, SlowOnly, inflate, load_weights
from dnlnet.backbones.pixels import Pixels
from dnlnet.data.classes import Classes
from dnlnet.recipes.catalog import open_video_set
from dnlnet.recipes.fingerprint import Listed
from dnlnet.recipes.parts import IMAGENET, required_folder
from dnlnet.recipes.schema import VideoClassifierModel, VideoData, VideoRecipe
from dnlnet.video.data.clips import Clip
from dnlnet.video.data.samples import ClipSample, TestViews, TrainingClips, ViewSample
from dnlnet.video.network import VideoClassifier
from dnlnet.video.task import VideoTask

_IMAGE_NETWORKS = {"slow_only_r50": "resnet50", "slow_only_r101": "resnet101"}  # whose weights they are inflated from


def build_model(
    model: VideoClassifierModel, classes: int, *, weights: bool = True, report: Callable[[str], None] = lambda _: None
) -> VideoClassifier:
    """The network of a recipe; weights are inflated into its backbone before the blocks are put there.

    >>> from dnlnet.recipes import find_recipe
    >>> with torch.device("meta"):
    ...     network = build_model(find_recipe("kinetics-r50-baseline").model, classes=400, weights=False)
    >>> sum(parameter.numel() for parameter in network.parameters())
    32454096
    """
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


def _load(backbone: SlowOnly, source: str, report: Callable[[str], None]) -> None:
    if source != IMAGENET:
        report(f"{source}: {load_weights(backbone, Path(source))}")
        return
    if backbone.name not in _IMAGE_NETWORKS:
        raise ValueError(f"{backbone.name} has no ImageNet weights; give a file, or none with model.weights=null")
    image = Backbone(_IMAGE_NETWORKS[backbone.name], 32, pretrained=True)
    backbone.load_state_dict(inflate(image.body.state_dict(), backbone))


def clip_of(data: VideoData) -> Clip:
    """Which frames make a clip."""
    return Clip(data.frames, data.stride, data.rate)


def pixels_of(data: VideoData) -> Pixels:
    """How clips are normalised."""
    return Pixels(tuple(255 * x for x in data.mean), tuple(255 * x for x in data.deviation))


def build_task(
    recipe: VideoRecipe,
    classes: Classes,
    validation: Dataset[ViewSample] | None = None,
    average: Callable[[Tensor], Tensor] = lambda number: number,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda _: None,
) -> VideoTask:
    """The task of a recipe; `report` is told of videos that cannot be read."""
    return VideoTask(classes, pixels_of(recipe.data), recipe.evaluation.at_once, report)


def build_training_data(
    recipe: VideoRecipe,
    root: Path | None,
    *,
    split: str | None = None,
    seed: int = 0,
    unpacked: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Dataset[ClipSample]:
    """The training clips of a recipe; `report` is told how many videos there are."""
    if unpacked is not None:
        raise ValueError("--unpack is for crops of labelled images; of videos only the needed frames are decoded")
    data = recipe.data
    videos = open_video_set(data.name, required_folder(recipe, root), data.train if split is None else split)
    missing = f"; {len(videos.missing)} listed videos are not there" if videos.missing else ""
    report(f"{videos.name}: {len(videos)} videos to train on{missing}")
    return TrainingClips(videos, clip_of(data), data.short_sides, data.crop, data.flip, seed)


def build_validation_data(recipe: VideoRecipe, root: Path | None) -> Dataset[ViewSample] | None:
    """The views that a recipe is evaluated on, or None if it trains on all that is labelled."""
    data, views = recipe.data, recipe.evaluation
    if data.test is None:
        return None
    videos = open_video_set(data.name, required_folder(recipe, root), data.test)
    return TestViews(videos, clip_of(data), views.clips, views.crops, views.short_side)


def listed_files(samples: TrainingClips | TestViews) -> Iterator[Listed]:
    """The files of samples, in order, with the class of each."""
    for entry in samples.videos.videos:
        yield entry.path, entry.label


def find_classes(recipe: VideoRecipe, root: Path | None = None) -> Classes:
    """The classes of the recipe's data, as its lists name them."""
    return open_video_set(recipe.data.name, required_folder(recipe, root), recipe.data.train).classes
