"""Which builders a recipe's task has."""

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType

from torch import nn

from dnlnet.recipes import build_detection, build_segmentation, build_video
from dnlnet.recipes.schema import Recipe, SegmentationRecipe, VideoRecipe

# Modules with the same functions: build_model, build_task, build_training_data, build_validation_data, find_classes,
# listed_files.
BUILDERS: Mapping[str, ModuleType] = {
    "segmentation": build_segmentation,
    "detection": build_detection,
    "video": build_video,
}

_VIDEO_CLASSES = {"kinetics": 400, "ucf101": 101}


def builder_of(recipe: Recipe) -> ModuleType:
    """The module whose functions build what this recipe describes.

    >>> from dnlnet.recipes import find_recipe
    >>> builder_of(find_recipe("scenes-tiny-dnl")).__name__
    'dnlnet.recipes.build_segmentation'
    """
    return BUILDERS[recipe.task]


def network_of(recipe: Recipe) -> tuple[Callable[[], nn.Module], tuple[int, ...]]:
    """What makes a recipe's network without trained weights, and the size of what it looks at, to measure it with.

    The size is height and width, or frames, height and width. A video network tells the classes of the whole data set
    apart, which its lists are not needed for.

    >>> from dnlnet.recipes import find_recipe
    >>> network_of(find_recipe("kinetics-r50-dnl"))[1]
    (8, 256, 256)
    """
    size: tuple[int, ...]
    if isinstance(recipe, SegmentationRecipe):
        classes, size = len(build_segmentation.find_classes(recipe)), recipe.data.crop
    elif isinstance(recipe, VideoRecipe):
        side = recipe.evaluation.short_side
        classes, size = _VIDEO_CLASSES[recipe.data.name], (recipe.data.frames, side, side)
    else:
        raise ValueError(f"{recipe.name} is a recipe for {recipe.task}; this is for segmentation and video")
    return partial(builder_of(recipe).build_model, recipe.model, classes, weights=False), size
