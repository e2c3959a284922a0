"""From a recipe with a frozen backbone to the source of its features."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dnlnet.data.labelled import LabelledImages
from dnlnet.engine import distributed
from dnlnet.recipes.model import build_backbone
from dnlnet.segmentation.data.features import Extractor, FeatureCache, Source
from dnlnet.segmentation.data.views import View
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.schema import SegmentationRecipe

# What of a recipe's model the features depend on, beside the weights themselves.
_SETTINGS = {"backbone", "output_stride", "dilations", "stride_in_1x1", "ceil_pool", "caffe_pixels", "pixels"}


def open_features(
    recipe: SegmentationRecipe,
    images: LabelledImages,
    views: Sequence[View],
    cache: Path | None,
    report: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Source, tuple[int, ...]]:
    """What gives the features of the images, and the strides of their stages.

    Args:
        recipe: names the backbone, its weights and stages.
        images: whose features.
        views: to be kept.
        cache: folder to keep them in, filled by the main process before this returns; None computes them on the spot.
        report: called with what a user should know.
        progress: called while features are computed.
    """
    model = recipe.model
    if model.weights is None:
        raise ValueError(
            f"{recipe.name}: features of a backbone without weights say nothing; give model.weights=FILE"
        )
    backbone = build_backbone(model, model.output_stride, weights=True, dilations=model.dilations)
    network = FrozenSegmentor(backbone, classes=1, variant=None, stages=model.stages, width=1)
    extractor = Extractor(network, model.model_dump(mode="json", include=_SETTINGS))
    if cache is None:
        return extractor, network.strides
    kept = FeatureCache(cache, extractor)
    pictures = [pair.image for pair in images.require_complete().pairs]
    distributed.in_main(lambda: kept.fill(pictures, views, report, progress))
    distributed.barrier()
    return kept, network.strides


def in_positions(crop: tuple[int, int], stride: int) -> tuple[int, int]:
    """A crop in positions of the grid.

    >>> in_positions((192, 256), 8)
    (24, 32)
    """
    if crop[0] % stride or crop[1] % stride:
        raise ValueError(f"a crop of {crop[0]} x {crop[1]} pixels is no whole number of positions of {stride} pixels")
    return crop[0] // stride, crop[1] // stride


def trains_backbone(recipe: SegmentationRecipe, phase: int) -> bool:
    """Whether a part of the backbone is trained in this phase of the schedule, or was in one before it."""
    then = recipe.schedule.then[:phase]
    return any(prefix.startswith("backbone") for earlier in then for prefix in earlier.unfrozen)
